"""The small model of the demo: scenes of moving shapes, their captions, training and scoring."""
