"""Set-up for all tests: one thread per process, and which modules `make quick` leaves out."""

import os
import signal

import pytest
from hypothesis import settings

# No test depends on the clock, so none fails for being slow on a busy machine. Who runs the suite in a way of its own names another profile.
settings.register_profile("coalmine", deadline=None)
settings.load_profile(os.environ.get("COALMINE_HYPOTHESIS_PROFILE", "coalmine"))

# The suite runs as many processes as there are cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell that starts the suite in the background makes it ignore Ctrl-C, and the processes that tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Modules that train models, start servers or open a browser, by their place below tests/: more than half of the suite's time.
SLOW = {
    "audits/exposure/test_exposure_search.py",
    "browser/test_pages_cannot_ask.py",
    "browser/test_report_in_browser.py",
    "cli/test_command_line.py",
    "cli/test_demo.py",
    "cli/test_hostile_names.py",
    "cli/test_secrets_stay.py",
    "cli/test_streams.py",
    "corpus/index/test_index_queries.py",
    "corpus/index/test_index_sampling.py",
    "docs/test_documents.py",
    "docs/test_site.py",
    "examples/test_examples.py",
    "faults/test_endpoint_commands.py",
    "faults/test_faulty_disk.py",
    "faults/test_fork_server.py",
    "faults/test_kills.py",
    "faults/test_kills_at_endpoints.py",
    "faults/test_kills_with_transformers.py",
    "faults/test_real_limits.py",
    "faults/test_two_at_once.py",
    "faults/test_signals.py",
    "faults/test_switching_endpoint.py",
    "faults/test_writes.py",
    "integrations/test_adapter_training.py",
    "models/transformers/test_adapter_tensors.py",
    "models/endpoints/test_answer_cache.py",
    "models/transformers/test_damaged_models.py",
    "models/endpoints/test_endpoint_blips.py",
    "models/endpoints/test_endpoint_faults.py",
    "models/endpoints/test_endpoint_hostile.py",
    "models/endpoints/test_endpoint_noise.py",
    "models/endpoints/test_endpoint_switches.py",
    "models/transformers/test_finetuned_transformers.py",
    "models/transformers/test_half_precision.py",
    "models/transformers/test_huggingface.py",
    "models/transformers/test_masked.py",
    "models/test_offline.py",
    "models/inference/test_pairs.py",
    "models/reference/test_weights_verified.py",
    "models/transformers/test_peft_adapters.py",
    "serving/test_admission.py",
    "reports/test_verifying.py",
    "serving/test_serve.py",
    "statistics/exposure/test_extrapolation.py",
    "integrations/test_pytest_plugin.py",
    "training/test_pairs_lessons.py",
    "training/test_pairs_training.py",
    "training/test_trainer.py",
}


def pytest_collection_modifyitems(items):
    for item in items:
        place = item.path.as_posix().rpartition("/tests/")[2]
        if place in SLOW:
            item.add_marker(pytest.mark.slow)
