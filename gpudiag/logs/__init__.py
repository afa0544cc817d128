"""Reading what a server left behind: logs, dumps and recorder files into LogFacts."""
