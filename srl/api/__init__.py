"""Every contract of SRL, and nothing else. Read it in one sitting; it needs numpy only."""
