"""What grpc's C core prints on standard error: nothing, unless the environment asks for it.

It would print what clients send as they leave (the debug data of a GOAWAY), line breaks and colours included.
It reads the variable when grpc is imported (grpcio 1.85.1), so this module is imported before.
"""

import os
from typing import Final

VARIABLE: Final = "GRPC_VERBOSITY"

os.environ.setdefault(VARIABLE, "NONE")
