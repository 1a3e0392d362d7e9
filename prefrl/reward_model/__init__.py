"""The learned reward: ensemble, preference loss, bootstrap, fitting, query selection, label schedule."""
