"""Tests ask no hub for a checkpoint: set before `huggingface_hub`, which reads it, is imported."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
