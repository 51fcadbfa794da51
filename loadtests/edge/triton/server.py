"""NVIDIA's own Triton server beside ours: the binary that the `nvidia-pytriton` wheel carries.

  pip install --no-deps --target FOLDER nvidia-pytriton 'numpy<2'    # 50 MB; then pass --triton FOLDER

Its Python backend reads numpy's arrays as numpy 1 lays them out: with numpy 2 all its answers are empty.

Its one model is a sample of this repository behind the Python backend, tuned by hand for an SLO as an
operator would: batches of up to the size that takes half the SLO, no delay, and a queue that gives a request
up when such a batch would no longer answer it in time.
"""

import contextlib
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from loadtests.harness.gateway import Gateway, free_ports, running
from loadtests.harness.processes import children, command_line, pin

STUB = "triton_python_backend_stub"
HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Tuning:
    """`rows`: of the largest batch; `queue_us`: how long a request may wait, None if the server is to make no
    batches of its own. `columns`: of the sample's INPUT and OUTPUT."""

    rows: int
    queue_us: int | None
    columns: tuple[int, int] = (1024, 10)


@contextlib.contextmanager
def triton(wheel: Path, folder: Path, tuning: Tuning, cores: tuple[int, int] | None) -> Iterator[Gateway]:
    """Yield the server, ready, with the sample in `folder` on the first of `cores` and itself on the second;
    with None, both on any core.

    `wheel`: the folder that nvidia-pytriton was installed to. Raises ValueError if it is not there,
    RuntimeError if the server does not start.
    """
    server = wheel / "pytriton" / "tritonserver"
    if not (server / "bin" / "tritonserver").is_file():
        raise ValueError(f"--triton: {wheel} holds no nvidia-pytriton; install it there")
    if not [*wheel.glob("numpy-1.*")]:
        raise ValueError(
            f"--triton: {wheel} holds no numpy below 2; install it there, or all answers are empty"
        )
    with tempfile.TemporaryDirectory(prefix="triton-") as name:
        place = Path(name)
        _lay_out(wheel, folder, tuning, place)
        http, grpc, metrics = free_ports(3)
        command = [
            str(place / "tritonserver"), "--model-repository", str(place / "models"),
            "--backend-directory", str(place / "backends"), "--allow-metrics=false",
            f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}", "--log-info=false",
        ]  # fmt: skip
        libraries = [str(wheel / "nvidia_pytriton.libs"), str(sysconfig.get_config_var("LIBDIR"))]
        environment = {
            "LD_LIBRARY_PATH": os.pathsep.join(libraries),
            "OMP_NUM_THREADS": "1",
            "PATH": os.pathsep.join((str(_python(wheel, place / "python")), os.environ["PATH"])),
        }
        with running(command, f"http://127.0.0.1:{http}/v2/health/ready", **environment) as pid:
            if cores is not None:
                pin(pid, [cores[1]])
                for stub in children(pid):
                    if STUB in command_line(stub):
                        pin(stub, [cores[0]])
            yield Gateway("127.0.0.1", http, pid, rpc_port=grpc)


def workers(server: Gateway) -> list[int]:
    """Return the processes in which its models run."""
    return [pid for pid in children(server.pid) if STUB in command_line(pid)]


def _python(wheel: Path, home: Path) -> Path:
    """Lay out this Python with the packages of the wheel's folder alone; return the folder of its program.

    The backend reads no variable of the environment but PATH, and would take another numpy.
    """
    standard = Path(sysconfig.get_path("stdlib"))
    modules = home / "lib" / standard.name
    modules.mkdir(parents=True)
    (home / "bin").mkdir()
    shutil.copy(Path(sys.executable).resolve(), home / "bin" / "python3")
    for each in standard.iterdir():
        if each.name != "site-packages":
            (modules / each.name).symlink_to(each)
    (modules / "site-packages").symlink_to(wheel.resolve())
    return home / "bin"


def _lay_out(wheel: Path, folder: Path, tuning: Tuning, place: Path) -> None:
    server = wheel / "pytriton" / "tritonserver"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copy(server / "bin" / "tritonserver", place)
    shutil.copytree(server / "backends", place / "backends")
    shutil.copy(server / "python_backend_stubs" / version / STUB, place / "backends" / "python")
    for program in (place / "tritonserver", place / "backends" / "python" / STUB):
        program.chmod(0o755)
    model = place / "models" / folder.name / "1"
    model.mkdir(parents=True)
    shutil.copy(HERE / "model.py", model)
    (model.parent / "config.pbtxt").write_text(f"""
        name: "{folder.name}"
        backend: "python"
        max_batch_size: {tuning.rows}
        input [{{name: "INPUT", data_type: TYPE_FP32, dims: [{tuning.columns[0]}]}}]
        output [{{name: "OUTPUT", data_type: TYPE_FP32, dims: [{tuning.columns[1]}]}}]
        instance_group [{{count: 1, kind: KIND_CPU}}]
        parameters {{key: "file", value: {{string_value: "{folder / "model.py"}"}}}}
        parameters {{key: "packages", value: {{string_value: "{sysconfig.get_path("purelib")}"}}}}
        {"" if tuning.queue_us is None else _batching(tuning)}
    """)


def _batching(tuning: Tuning) -> str:
    return f"""
        dynamic_batching {{
            max_queue_delay_microseconds: 0
            default_queue_policy {{
                timeout_action: REJECT
                default_timeout_microseconds: {tuning.queue_us}
                allow_timeout_override: false
                max_queue_size: {8 * tuning.rows}
            }}
        }}
    """
