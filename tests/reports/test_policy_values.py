"""Values of a policy at the edge of what is allowed, and what a policy says where it says nothing."""

import pytest

from coalmine import parse_policy
from coalmine.errors import InputError
from coalmine.reports.gate.policy import Policy


def test_what_a_policy_says_by_default():
    policy = parse_policy("[exposure]\nat_most = 10")
    assert (policy.confidence, policy.min_canaries, policy.require) == (0.95, 1, ())
    assert not policy.exposure.all_at_once
    assert not policy.extraction.accept_unproven
    assert policy == Policy(exposure=policy.exposure)


@pytest.mark.parametrize(
    ("lines", "accepted"),
    [
        ("confidence = 0.001\n[exposure]\nat_most = 1", True),
        ("confidence = 0.0\n[exposure]\nat_most = 1", False),
        ("confidence = 0.999\n[exposure]\nat_most = 1", True),
        ("confidence = 1.0\n[exposure]\nat_most = 1", False),
        ("min_canaries = 1\n[exposure]\nat_most = 1", True),
        ("min_canaries = 0\n[exposure]\nat_most = 1", False),
        ("[exposure]\nat_most = 0", True),
        ("[exposure]\nat_most = -0.1", False),
        ("[exposure]\nat_most = 300", True),
        ("[exposure]\nat_most = 1\nup_to_repetitions = 1", True),
        ("[exposure]\nat_most = 1\nup_to_repetitions = 0", False),
        ("[exposure]\nat_most = 1\nall_at_once = false", True),
        ("[exposure]\nall_at_once = true", False),
        ("[exposure.by_repetitions]\n1 = 0.5", True),
        ("[exposure.by_repetitions]\n0 = 0.5", False),
        ('[exposure.by_repetitions]\n"²" = 0.5', False),
        ("[exposure.by_repetitions]\n-1 = 0.5", False),
        ("[exposure.by_repetitions]\ntwo = 0.5", False),
        ("[exposure.by_repetitions]\n12 = inf", False),
        ("[extraction]\nat_most_extracted = 0\namong_first = 1", True),
        ("[extraction]\nat_most_extracted = 0\namong_first = 0", False),
        ("[extraction]\nat_most_extracted = 0\naccept_unproven = true\nbudget_at_least = 1", True),
        ("[extraction]\nat_most_extracted = 0\naccept_unproven = true\nbudget_at_least = 0", False),
        ("[extraction]\nat_most_extracted = 0\nbudget_at_least = 1", False),
        ("[extraction]\nat_most_extracted = 0\naccept_unproven = true", True),
        ("[extraction]\naccept_unproven = true", False),
        ("[membership]\nauc_at_most = 1", True),
        ("[membership]\nauc_at_most = 1.001", False),
        ("[membership]\ntpr_at_fpr_1_percent_at_most = 1.5", False),
        ("[membership]\nno_epsilon_shown_above = 8", True),
        ("[membership]\nclaim_not_violated = true", True),
        ("[membership]\nclaim_not_violated = false", False),
        ("[defenses]\nclaims_hold = true", True),
        ("[defenses]\nclaims_hold = false", False),
        ("[recitation]\nrate_at_most = 1.5", False),
        ("[recitation]\nrate_at_most = 0.0", True),
        ("[provenance]\nno_user_found = true", True),
        ("[provenance]\nno_user_found = false", False),
        ("[provenance]\nno_user_found = true\nfdr = 0.999", True),
        ("[provenance]\nno_user_found = true\nfdr = 0.0", False),
        ("[provenance]\nno_user_found = true\nfdr = 1.0", False),
        ("[provenance]\nno_user_found = true\nmin_non_members = 1", True),
        ("[provenance]\nno_user_found = true\nmin_non_members = 0", False),
        ("[provenance]\nmin_non_members = 1", False),
        ('require = ["exposure"]', True),
        ('require = ["exposure"]\n[exposure]', True),
        ("require = []", False),
        ("[exposure]", False),
    ],
)
def test_values_at_the_edge(lines, accepted):
    if accepted:
        parse_policy(lines)
    else:
        with pytest.raises(InputError):
            parse_policy(lines)


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        ("# first\n\n[exposure]\nat_most = -1", 4),
        ("exposure.at_most = -1", 1),
        ('[exposure]\nat_most = 1\n[exposure.by_repetitions]\n"0" = 3', 4),
        ("[exposure]\nat_most = 1\n\n[membership]\nup_to_repetitions = 2", 4),
        ("[membership]\nauc_at_most = 0.5\n[exposure]\nat_most = -1", 4),
    ],
)
def test_the_line_that_is_at_fault_is_named(lines, line):
    with pytest.raises(InputError, match=f"^policy.toml, line {line}: "):
        parse_policy(lines, "policy.toml")


def test_what_a_value_must_be_is_said():
    with pytest.raises(InputError, match=r"exposure.up_to_repetitions must be at least 1, got 0"):
        parse_policy("[exposure]\nat_most = 1\nup_to_repetitions = 0")
    with pytest.raises(InputError, match=r"exposure.at_most must be a number of at least 0, got -1"):
        parse_policy("[exposure]\nat_most = -1")
    with pytest.raises(InputError, match=r"recitation.rate_at_most is a share between 0 and 1, got 2"):
        parse_policy("[recitation]\nrate_at_most = 2")
