"""The command line: one command, one module. Commands print data to stdout and talk on stderr."""
