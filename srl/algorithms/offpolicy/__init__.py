"""What off-policy algorithms share: options, gradient steps with target networks, and the loop over minibatches."""
