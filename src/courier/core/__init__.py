"""The broker without HTTP, SQL or any vendor's words."""
