"""Sessions and their chains of turns, and which node a call goes to; pure."""
