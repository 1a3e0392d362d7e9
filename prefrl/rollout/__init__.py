"""The policy acts and learns on the learned reward."""
