"""The observer's only users of the stream engine, the web server and the plotting library."""
