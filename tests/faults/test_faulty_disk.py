"""The faulty disk sees what every library writes, makes the right call fail, and leaves all other files alone."""

import errno
import json


def test_what_every_library_writes_is_seen_and_can_fail(fork_server, tmp_path):
    ended = fork_server.run([tmp_path], call="faults.disk_writers:try_each")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert len(found) == 7
    for writer, (seen, failed) in found.items():
        assert "write" in seen, writer
        assert {"create", "open"} & set(seen), writer
        # SQLite has a name of its own for it.
        assert "No space left on device" in failed or "disk is full" in failed, writer


def test_a_read_fails_with_the_error_that_was_asked_for(fork_server, tmp_path):
    assert fork_server.run([tmp_path], call="faults.disk_writers:read_back").out == f"{errno.EIO}\n"


def test_a_disk_becomes_full_in_the_middle_of_a_write(fork_server, tmp_path):
    ended = fork_server.run([tmp_path], call="faults.disk_writers:half_a_write")
    assert ended.out == f"{errno.ENOSPC} 50000\n"


def test_a_process_that_nobody_told_to_fail_does_not(fork_server, tmp_path):
    assert fork_server.run(["policy", "init", tmp_path / "policy.toml"]).code == 0
