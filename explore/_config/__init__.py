"""From a gin file to the components it names."""
