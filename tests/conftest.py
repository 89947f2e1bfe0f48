"""Set-up for all tests: one thread per process, one warm process for commands, and which modules `make quick` leaves out."""

import os
import signal

import pytest
from hypothesis import settings

# No test depends on the clock, so none fails for being slow on a busy machine. Who runs the suite in a way of its own names another profile.
settings.register_profile("coalmine", deadline=None)
settings.load_profile(os.environ.get("COALMINE_HYPOTHESIS_PROFILE", "coalmine"))

# The suite runs as many processes as there are cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# No power is cut here, and bringing each file to the disk takes time.
os.fsync = lambda file: os.fstat(file) and None

# A shell that starts the suite in the background makes it ignore Ctrl-C, and the processes that tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Modules that take a second or more: they train models, start servers, open a browser or simulate. By their place below tests/.
SLOW = {
    "audits/comparison/test_comparing_references.py",
    "audits/comparison/test_comparison.py",
    "audits/defenses/test_defend.py",
    "audits/defenses/test_defense_findings.py",
    "audits/disagreement/test_crosscheck.py",
    "audits/exposure/test_exposure_audit.py",
    "audits/exposure/test_exposure_comparisons.py",
    "audits/exposure/test_exposure_engines.py",
    "audits/exposure/test_exposure_search.py",
    "audits/exposure/test_guided_coverage.py",
    "audits/exposure/test_poisoned_members.py",
    "audits/exposure/test_splitting_audit.py",
    "audits/exposure/test_unsearchable_formats.py",
    "audits/extraction/test_extraction_audit.py",
    "audits/extraction/test_extraction_certificate.py",
    "audits/membership/test_claims_of_models.py",
    "audits/membership/test_membership.py",
    "audits/provenance/test_words.py",
    "audits/provenance/test_blind_baseline.py",
    "audits/provenance/test_comparing_texts.py",
    "audits/provenance/test_fit.py",
    "audits/provenance/test_one_person.py",
    "audits/provenance/test_poisoned_users.py",
    "audits/provenance/test_private_targets.py",
    "audits/provenance/test_provenance_audit.py",
    "audits/provenance/test_provenance_endpoints.py",
    "audits/provenance/test_report.py",
    "audits/provenance/test_shadows.py",
    "audits/recitation/test_recitation.py",
    "audits/recitation/test_recitation_engines.py",
    "audits/test_again.py",
    "audits/test_installed_audits.py",
    "audits/test_recorded_audits.py",
    "browser/test_pages_cannot_ask.py",
    "browser/test_report_in_browser.py",
    "cli/test_command_line.py",
    "cli/test_demo.py",
    "cli/test_hostile_names.py",
    "cli/test_secrets_stay.py",
    "cli/test_streams.py",
    "corpus/chat/test_chat_lines.py",
    "corpus/chat/test_chat_tables.py",
    "corpus/deduplication/test_deduplicating.py",
    "corpus/files/test_corpus_reading.py",
    "corpus/files/test_embedded.py",
    "corpus/index/test_index_files.py",
    "corpus/index/test_index_queries.py",
    "corpus/index/test_index_sampling.py",
    "corpus/index/test_index_sorting.py",
    "corpus/planting/test_full_disk.py",
    "corpus/planting/test_planting.py",
    "corpus/planting/test_power.py",
    "corpus/planting/test_unseen.py",
    "corpus/redaction/test_redacting.py",
    "corpus/secrets/test_labeled.py",
    "corpus/secrets/test_scanning.py",
    "docs/test_documents.py",
    "docs/test_site.py",
    "endpoints/test_chat_endpoint.py",
    "endpoints/test_chat_process.py",
    "endpoints/test_chat_dialects.py",
    "endpoints/test_chat_prompting.py",
    "endpoints/test_chat_recitation.py",
    "endpoints/test_fault_proxy.py",
    "engines/test_audits_on_ray.py",
    "engines/test_engines.py",
    "engines/test_ledger.py",
    "engines/test_ray.py",
    "engines/test_sending.py",
    "evidence/test_error_budget.py",
    "evidence/test_gate_outcomes.py",
    "examples/test_examples.py",
    "faults/test_endpoint_commands.py",
    "faults/test_kills.py",
    "faults/test_kills_at_endpoints.py",
    "faults/test_kills_with_transformers.py",
    "faults/test_real_limits.py",
    "faults/test_signals.py",
    "faults/test_switching_endpoint.py",
    "faults/test_two_at_once.py",
    "faults/test_writes.py",
    "formats/test_format.py",
    "formats/test_regex.py",
    "fuzzing/test_readers.py",
    "integrations/test_adapter_training.py",
    "integrations/test_pytest_plugin.py",
    "integrations/test_sft_survival.py",
    "integrations/test_sft_training.py",
    "integrations/test_transformers_trainer.py",
    "models/endpoints/test_answer_cache.py",
    "models/endpoints/test_endpoint.py",
    "models/endpoints/test_endpoint_blips.py",
    "models/endpoints/test_endpoint_faults.py",
    "models/endpoints/test_endpoint_hostile.py",
    "models/endpoints/test_endpoint_listing.py",
    "models/endpoints/test_endpoint_noise.py",
    "models/endpoints/test_endpoint_switches.py",
    "models/inference/test_pairs.py",
    "models/inference/test_running_out.py",
    "models/reference/test_weights_verified.py",
    "models/test_offline.py",
    "models/test_vllm.py",
    "models/transformers/test_adapter_tensors.py",
    "models/transformers/test_chat.py",
    "models/transformers/test_chat_frames.py",
    "models/transformers/test_damaged_models.py",
    "models/transformers/test_finetuned_transformers.py",
    "models/transformers/test_gguf.py",
    "models/transformers/test_half_precision.py",
    "models/transformers/test_huggingface.py",
    "models/transformers/test_masked.py",
    "models/transformers/test_peft_adapters.py",
    "models/transformers/test_placing.py",
    "models/transformers/test_quantized.py",
    "models/transformers/test_shared_prefix.py",
    "models/transformers/test_slow_tokenizers.py",
    "mutants/test_places.py",
    "mutants/test_trying.py",
    "reports/test_findings.py",
    "reports/test_gate_coverage.py",
    "reports/test_policy.py",
    "reports/test_report_page.py",
    "reports/test_verifying.py",
    "audits/whole/test_auditing.py",
    "search/tree/test_real_tokenizers.py",
    "search/tree/test_subword_walks.py",
    "search/tree/test_token_trees.py",
    "search/walks/test_best_first.py",
    "search/walks/test_counting.py",
    "search/walks/test_enumeration.py",
    "search/walks/test_state_memory.py",
    "search/walks/test_strategies_agree.py",
    "search/walks/test_vocabulary_memory.py",
    "serving/test_admission.py",
    "serving/test_chat.py",
    "serving/test_completions.py",
    "serving/test_serve.py",
    "statistics/epsilon/test_epsilon_bounds.py",
    "statistics/epsilon/test_epsilon_coverage.py",
    "statistics/epsilon/test_epsilon_gaussian.py",
    "statistics/exposure/test_bounded_mean.py",
    "statistics/exposure/test_extrapolation.py",
    "statistics/exposure/test_guided_exposure.py",
    "statistics/provenance/test_rank_histograms.py",
    "statistics/test_differences.py",
    "statistics/test_tpr_bands.py",
    "statistics/test_trends.py",
    "storage/test_decoding.py",
    "test_pages.py",
    "training/finetuning/test_finetuning.py",
    "training/finetuning/test_private_finetuning.py",
    "training/private/test_accounting.py",
    "training/private/test_ghost_clipping.py",
    "training/private/test_ghost_transformers.py",
    "training/private/test_private_training.py",
    "training/private/test_units.py",
    "training/quantizing/test_quantizing.py",
    "training/quantizing/test_rounding.py",
    "training/test_documents_training.py",
    "training/test_family.py",
    "training/test_pairs_lessons.py",
    "training/test_pairs_training.py",
    "training/test_trainer.py",
    "training/unlearning/test_unlearning.py",
}

# Of these, those that take longest; they begin first where several processes share the suite, which would else wait for one of them.
LONGEST = (
    "cli/test_demo.py",
    "faults/test_kills.py",
    "faults/test_writes.py",
    "engines/test_audits_on_ray.py",
    "browser/test_report_in_browser.py",
    "engines/test_ray.py",
    "faults/test_signals.py",
    "audits/exposure/test_guided_coverage.py",
    "audits/exposure/test_exposure_engines.py",
    "models/endpoints/test_endpoint_faults.py",
    "fuzzing/test_readers.py",
    "search/walks/test_best_first.py",
    "models/transformers/test_huggingface.py",
    "models/endpoints/test_endpoint_blips.py",
    "examples/test_examples.py",
    "training/test_family.py",
    "training/test_trainer.py",
    "faults/test_kills_with_transformers.py",
    "models/transformers/test_finetuned_transformers.py",
    "audits/exposure/test_exposure_search.py",
    "audits/defenses/test_defend.py",
    "training/private/test_private_training.py",
    "training/finetuning/test_private_finetuning.py",
    "models/inference/test_pairs.py",
    "cli/test_command_line.py",
)


def pytest_collection_modifyitems(config, items):
    def place(item):
        return item.path.as_posix().rpartition("/tests/")[2]

    for item in items:
        if place(item) in SLOW:
            item.add_marker(pytest.mark.slow)
    if hasattr(config, "workerinput"):  # one of several processes
        order = {name: number for number, name in enumerate(LONGEST)}
        items.sort(key=lambda item: order.get(place(item), len(order)))


@pytest.fixture(scope="session")
def faulty_disk(tmp_path_factory):
    """The environment of a process with a disk that fails on request, and that brings nothing to the real one."""
    from faults.faulty_disk import build

    return {"LD_PRELOAD": str(build(tmp_path_factory.mktemp("faulty-disk")))}


@pytest.fixture(scope="session")
def fork_server(faulty_disk):
    """One warm process that forks a child for each run of a command."""
    from faults.fork_server import ForkServer

    with ForkServer(environment=faulty_disk) as started:
        yield started
