"""The Spark side: the journal as a data source, and the lake that is made of it.

Nothing here needs the server or its packages: executors have a URL and a key, and reach the
broker over HTTP.
"""
