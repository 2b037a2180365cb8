"""``python -m workers.bench.peer ARGUMENTS…``: vLLM's own startup benchmark, as ``vllm bench startup`` runs it.

That command does not start from every distribution of vLLM; its benchmark does. It runs as it is. Only its workers are
told apart from vLLM's, by one line that each writes once its engine is up: see ``workers.bench.counted``.
"""

from __future__ import annotations


def main() -> None:
    """The arguments are those of ``vllm bench startup``."""
    from vllm.benchmarks import startup
    from vllm.platforms import current_platform
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    from workers.bench.counted import CPU_WORKER, GPU_WORKER

    # vLLM's command line gives every benchmark a parser of this kind.
    parser = FlexibleArgumentParser(prog="python -m workers.bench.peer", description=__doc__)  # type: ignore[no-untyped-call]
    startup.add_cli_args(parser)
    arguments = parser.parse_args()
    arguments.worker_cls = CPU_WORKER if current_platform.is_cpu() else GPU_WORKER
    startup.main(arguments)


if __name__ == "__main__":
    main()
