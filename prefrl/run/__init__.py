"""Starting, supervising and watching runs."""
