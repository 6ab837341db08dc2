"""placeholder"""
from typing import Any
def ring(s: Any) -> dict[str, Any]: return {}
def raw_actor(s: Any) -> dict[str, Any]: return {}
