"""The main job, shown: a small GPT trains, loses processes in several ways, and goes on bit-exactly."""
