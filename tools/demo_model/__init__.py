"""The small model of the demo: scenes of moving shapes, their captions, and the training on them."""
