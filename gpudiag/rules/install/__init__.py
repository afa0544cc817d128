"""Checks of the packages in the server's own interpreter."""
