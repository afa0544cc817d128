"""Starting a server: from a profile to argv and environment, checks before, evidence armed, and somebody who watches it."""
