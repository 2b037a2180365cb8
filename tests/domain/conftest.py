from __future__ import annotations

import pytest

from workers.protocol import Catalogue, Environment, KeyInfo

KEYS = {
    "model": KeyInfo(type="str"),
    "dtype": KeyInfo(type="Literal['auto', 'float16', 'float32']"),
    "quantization": KeyInfo(type="str | None"),
    "seed": KeyInfo(type="int"),
    "block_size": KeyInfo(type="int | None"),
    "max_num_seqs": KeyInfo(type="int | None"),
    "tensor_parallel_size": KeyInfo(type="int"),
    "gpu_memory_utilization": KeyInfo(type="float"),
    "enforce_eager": KeyInfo(type="bool"),
    "allowed_media_domains": KeyInfo(type="list[str] | None"),
    "hf_overrides": KeyInfo(type="dict[str, Any] | Callable"),
    "compilation_config": KeyInfo(type="CompilationConfig", nested=True),
    "compilation_config.mode": KeyInfo(type="CompilationMode"),
    "compilation_config.splitting_ops": KeyInfo(type="list[str] | None"),
    "compilation_config.compile_sizes": KeyInfo(type="list[int | str] | None"),
    "compilation_config.inductor_compile_config": KeyInfo(type="dict"),
    "compilation_config.pass_config": KeyInfo(type="PassConfig", nested=True),
    "compilation_config.pass_config.enable_sp": KeyInfo(type="bool | None"),
    "compilation_config.pass_config.fuse_gemm_comms": KeyInfo(type="bool | None"),
    "attention_config": KeyInfo(type="AttentionConfig", nested=True),
    "attention_config.backend": KeyInfo(type="AttentionBackendEnum | None"),
}


def catalogue_of(keys: dict[str, KeyInfo]) -> Catalogue:
    environment = Environment(
        vllm="0.31.0", torch="2.11.0", ray=None, python="3.11.7", device="cpu", devices=0, cores=2
    )
    return Catalogue(environment=environment, keys=keys)


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    return catalogue_of(KEYS)
