"""What the neurons of a group are replaced by."""
