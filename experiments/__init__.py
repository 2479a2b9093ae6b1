from pathlib import Path

CONF = Path(__file__).resolve().parents[1] / "conf"  # the folder of the configuration
