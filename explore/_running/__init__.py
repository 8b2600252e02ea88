"""A run: its experiment, the loop through its episodes, and its end."""
