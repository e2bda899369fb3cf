"""Sessions and their chains of turns, what may be trained on, and which node a call goes to; pure."""
