"""Keys of other servers, and what says the same here: for operators that know those."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_BATCHES = "nothing: the gateway finds batches by `slo_ms`"
_LOAD = "nothing: replicas follow the load and `slo_ms`"
_REPLICAS = "`replicas: {min: 1, max: 4}` of a model in penstock.yaml"
_SLICES = "`slices:` in penstock.yaml, and `slices: [NAME]` of a model"
_SLO = "`slo_ms` of a model"
_NO = "nothing that says it"

_WORDS: Final = (
    ("Triton", {
        "backend": "`backend` of a variant in model.yaml", "platform": "`backend` of a variant in model.yaml",
        "max_batch_size": "`batch_max` in model.yaml", "instance_group": f"{_SLICES}, or `replicas:`",
        "dynamic_batching": _BATCHES, "preferred_batch_size": _BATCHES,
        "max_queue_delay_microseconds": _BATCHES, "default_queue_policy": _SLO,
        "default_timeout_microseconds": _SLO, "priority_levels": "`priorities:` in model.yaml",
        "sequence_batching": "`sequence:` in model.yaml", "ensemble_scheduling": _NO,
        "model_warmup": "nothing: a worker runs each model before it serves",
        "response_cache": "`cache: true` of a model",
        "model_transaction_policy": "`decoupled: true` in model.yaml", "input": "`inputs:` in model.yaml",
        "output": "`outputs:` in model.yaml", "data_type": "`datatype`", "dims": "`shape`",
        "label_filename": "`labels`",
    }),
    ("KServe", {
        "minReplicas": _REPLICAS, "maxReplicas": _REPLICAS, "scaleTarget": _LOAD, "scaleMetric": _LOAD,
        "containerConcurrency": _LOAD, "storageUri": "`path:` of a model", "canaryTrafficPercent": _NO,
        "modelFormat": "`backend` of a variant in model.yaml", "predictor": "an entry of `models:`",
    }),
    ("TorchServe", {
        "minWorkers": _REPLICAS, "maxWorkers": _REPLICAS, "batchSize": _BATCHES, "maxBatchDelay": _BATCHES,
        "responseTimeout": _SLO, "model_store": "`repository: {folders: [...]}`",
        "load_models": "entries of `models:`", "default_workers_per_model": _REPLICAS,
    }),
    ("Ray Serve", {
        "num_replicas": _REPLICAS, "min_replicas": _REPLICAS, "max_replicas": _REPLICAS,
        "autoscaling_config": f"{_REPLICAS}, and `scaling:`", "max_ongoing_requests": _LOAD,
        "target_ongoing_requests": _LOAD, "batch_wait_timeout_s": _BATCHES, "ray_actor_options": _SLICES,
        "num_gpus": _SLICES, "num_cpus": _SLICES, "max_queued_requests": "`limits:`",
        "deployments": "entries of `models:`", "applications": "entries of `models:`",
    }),
    ("vLLM", {
        "gpu_memory_utilization": _SLICES, "max_num_seqs": _BATCHES,
        "served_model_name": "`name` in model.yaml",
        "tensor_parallel_size": _NO, "max_model_len": "`endpoints: {tokens_max: ...}` in model.yaml",
    }),
    ("BentoML", {
        "workers": _SLICES, "max_latency_ms": _SLO, "max_concurrency": _LOAD,
        "traffic": f"{_SLO}, and `limits:`", "services": "entries of `models:`",
    }),
    ("LitServe", {
        "workers_per_device": _SLICES, "batch_timeout": _BATCHES, "accelerator": _SLICES,
    }),
)  # fmt: skip

FOREIGN: Final[Mapping[str, str]] = MappingProxyType(
    {
        key: f"it is a key of {server}; here it is {ours}"
        for server, words in _WORDS
        for key, ours in words.items()
    }
)
"""What to say of a key that is unknown here."""
