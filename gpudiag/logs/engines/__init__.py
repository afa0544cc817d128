"""What each engine writes and what it means: tables only, used by events, milestones and victims."""
