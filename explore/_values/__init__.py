"""Q_i(s, a): the indexed value function and the networks it is composed of."""
