"""Images of a world: the camera and the view from above."""
