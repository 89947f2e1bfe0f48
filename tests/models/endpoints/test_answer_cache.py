"""The file that keeps answers: whatever is in its place, however full the disk, there is a sentence that says what to do."""

import contextlib
import itertools
import os
import resource
import sqlite3
import stat
import sys
import zlib

import msgspec
import pytest

from coalmine import serve
from coalmine.errors import InputError
from coalmine.models import connect
from coalmine.models.endpoints import cache as caches
from coalmine.models.endpoints.answers import EndpointAnswer, EndpointQuestion
from coalmine.models.endpoints.cache import AnswerCache
from models.switching import QUICK, TEXTS, bits, scripted

COUNT = 200
QUESTION, ANSWER = (
    EndpointQuestion(prompt="p"),
    EndpointAnswer(text="t", tokens=("t",), nats=(-1.0,), tokens_used=3),
)


def opened(path):
    return contextlib.closing(AnswerCache(path, url="u", model="m"))


@pytest.fixture
def filled(tmp_path):
    """A cache with some answers, closed."""
    path = tmp_path / "answers.sqlite"
    with opened(path) as cache:
        cache.put(QUESTION, ANSWER)
        for number in range(COUNT):
            cache.put(EndpointQuestion(prompt=str(number)), EndpointAnswer(text="x" * 200 + str(number)))
    assert [one.name for one in tmp_path.iterdir()] == ["answers.sqlite"]
    return path


def use(path):
    """What a run does with it: all of it is read, and something is written."""
    with opened(path) as cache:
        found = [
            cache.get(QUESTION),
            *(cache.get(EndpointQuestion(prompt=str(number))) for number in range(COUNT)),
        ]
        cache.put(EndpointQuestion(prompt="new"), ANSWER)
        cache.bracket([QUESTION], [1])
        cache.confirm([QUESTION], [1], measured=1, probes=1, repeats=0)
        cache.checks()
        cache.remove_unconfirmed()
        return found


def test_it_is_whole(filled):
    whole = [ANSWER, *(EndpointAnswer(text="x" * 200 + str(number)) for number in range(COUNT))]
    assert use(filled) == whole


@pytest.mark.parametrize("size", [0, 1, 15, 16, 99, 100, 512, 4095, 4096, 4097, 8192, 20_000, 60_000])
def test_a_file_that_is_cut_short(filled, size):
    with filled.open("rb+") as file:
        file.truncate(size)
    if size == 0:
        assert set(use(filled)) == {None}  # as good as new
        return
    before = filled.read_bytes()
    with pytest.raises(
        InputError, match="is not a cache of coalmine, or is damaged; choose another place, or remove it"
    ):
        use(filled)
    assert filled.read_bytes()[:16] == before[:16]


def test_any_bytes_of_it_may_be_wrong(filled, tmp_path):
    """Noise in any page is refused, or costs the answers that it hits; no other answer comes out."""
    content = filled.read_bytes()
    whole = [ANSWER, *(EndpointAnswer(text="x" * 200 + str(number)) for number in range(COUNT))]
    refused = 0
    for number, place in enumerate(itertools.chain(range(0, 200, 9), range(200, len(content), 1999))):
        path = tmp_path / f"damaged-{number}"
        path.write_bytes(
            content[:place]
            + bytes(255 - byte for byte in content[place : place + 40])
            + content[place + 40 :]
        )
        found = [None] * len(whole)
        with contextlib.suppress(InputError):
            refused += 1
            found = use(path)
            refused -= 1
        assert all(one is None or one == right for one, right in zip(found, whole, strict=True))
    assert refused > 5


@pytest.mark.parametrize("kind", ["directory", "link", "dangling", "fifo", "device"])
@pytest.mark.parametrize("ending", ["", "-wal", "-shm", "-journal"])
def test_what_is_not_a_file_is_left_alone(tmp_path, kind, ending):
    path = tmp_path / "answers.sqlite"
    mine = tmp_path / "mine"
    mine.write_text("my own")
    mine.chmod(0o644)
    place = tmp_path / f"answers.sqlite{ending}"
    if kind == "directory":
        place.mkdir()
    elif kind == "fifo":
        os.mkfifo(place)
    elif kind == "device":
        if os.geteuid() != 0:
            pytest.skip("only the administrator can make a device")
        try:
            os.mknod(place, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("devices cannot be made here")
    else:
        place.symlink_to(mine if kind == "link" else tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"answers\.sqlite(-\w+)? is (not )?a "):
        AnswerCache(path, url="u", model="m")
    assert (mine.read_text(), stat.S_IMODE(mine.stat().st_mode)) == ("my own", 0o644)
    assert not (tmp_path / "nowhere").exists()


def test_places_where_nothing_can_be_written(tmp_path):
    for path in (tmp_path / ("x" * 300), tmp_path / "mine" / "answers", tmp_path / ("x" * 250)):
        (tmp_path / "mine").write_text("a file")
        with pytest.raises(InputError):
            AnswerCache(path, url="u", model="m")
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/answers-\xff")
    with opened(odd) as cache:
        cache.put(QUESTION, ANSWER)
        assert cache.get(QUESTION) == ANSWER


@pytest.mark.skipif(os.geteuid() == 0, reason="the administrator may write anywhere")
def test_a_file_that_may_not_be_written(filled):
    filled.parent.chmod(0o500)
    with pytest.raises(InputError, match="choose a place where you may write"):
        use(filled)
    filled.parent.chmod(0o700)


def test_a_file_that_another_process_holds(filled, monkeypatch):
    monkeypatch.setattr(caches, "SECONDS_FOR_ANOTHER_PROCESS", 0.05)
    in_use = "is in use by another process; wait until that is done"
    with contextlib.closing(sqlite3.connect(filled)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(InputError, match=in_use):
            AnswerCache(filled, url="u", model="m")
        other.rollback()
    with opened(filled) as cache, contextlib.closing(sqlite3.connect(filled)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(InputError, match=in_use):
            cache.put(EndpointQuestion(prompt="new"), ANSWER)
        assert cache.get(QUESTION) == ANSWER
        other.rollback()
        cache.put(EndpointQuestion(prompt="new"), ANSWER)
        assert cache.get(EndpointQuestion(prompt="new")) == ANSWER


def fill(cache):
    """Answers until no more can be kept; how many were."""
    for number in itertools.count():
        try:
            cache.put(EndpointQuestion(prompt=str(number)), EndpointAnswer(text=os.urandom(600).hex()))
        except InputError as problem:
            return number, str(problem)
    raise AssertionError("the disk is never full")


def test_a_full_disk_loses_nothing_that_was_kept(tmp_path):
    path = tmp_path / "answers"
    with opened(path) as cache:
        cache._connection.execute("PRAGMA max_page_count = 12")
        kept, said = fill(cache)
        assert "because the disk is full; free some space, and run the same command again to resume" in said
        assert 5 < kept < 100
        assert all(cache.get(EndpointQuestion(prompt=str(number))) for number in range(kept))
        assert cache.get(EndpointQuestion(prompt=str(kept))) is None
    with opened(path) as cache:
        assert all(cache.get(EndpointQuestion(prompt=str(number))) for number in range(kept))


def test_a_run_on_a_full_disk_ends_in_a_sentence_and_resumes_later(tmp_path):
    path = tmp_path / "answers"
    with serve(scripted(), port=0, name="m") as server:
        with connect(server.url, **QUICK, cache=path) as asked:
            database = asked._client._cache._connection
            (pages,) = database.execute("PRAGMA page_count").fetchone()
            database.execute(f"PRAGMA max_page_count = {pages + 1}")
            with pytest.raises(InputError, match="because the disk is full"):
                bits(asked)
        with connect(server.url, **QUICK, cache=path) as asked:
            assert len(bits(asked)) == len(TEXTS)


@pytest.mark.skipif(sys.platform != "linux", reason="limits on the size of files differ")
def test_a_limit_on_the_size_of_files(tmp_path):
    path = tmp_path / "answers"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with opened(path) as cache:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        try:
            kept, said = fill(cache)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "because the disk is full or fails; free some space, or choose another place" in said
    with opened(path) as cache:
        assert all(cache.get(EndpointQuestion(prompt=str(number))) for number in range(kept))


class TestHostileContent:
    """A file that was forged, with valid checksums."""

    def put(self, path, content):
        with opened(path) as cache:
            cache.put(QUESTION, ANSWER)
            key = cache._key(QUESTION)
        with contextlib.closing(sqlite3.connect(path)) as file, file:
            file.execute(
                "UPDATE answers SET answer = ?, checksum = ?", (content, caches._checksum(key, content))
            )

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"no deflate",
            zlib.compress(b""),
            zlib.compress(b"not json"),
            zlib.compress(b"[]"),
            zlib.compress(b'{"text": 5}'),
            zlib.compress(b'{"text": "\xff"}'),
            zlib.compress(b'{"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}"),
            zlib.compress(msgspec.json.encode(ANSWER))[:-3],
            zlib.compress(b'{"text": "' + b"x" * 80_000_000 + b'"}'),
        ],
        ids=lambda content: f"{len(content)} bytes",
    )
    def test_what_is_no_answer_is_as_good_as_none(self, tmp_path, content):
        self.put(tmp_path / "answers", content)
        with opened(tmp_path / "answers") as cache:
            assert cache.get(QUESTION) is None

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE answers SET answer = 'text'",
            "UPDATE answers SET checksum = 5",
            "UPDATE answers SET answer = 5, checksum = 5",
        ],
    )
    def test_values_of_another_type(self, filled, statement):
        with contextlib.closing(sqlite3.connect(filled)) as file, file:
            file.execute(statement)
        assert use(filled)[0] is None

    @pytest.mark.parametrize(
        "statement",
        [
            "CREATE TRIGGER evil AFTER INSERT ON answers BEGIN DELETE FROM answers; END",
            "CREATE VIEW evil AS SELECT 1",
            "CREATE TABLE evil (x)",
            "CREATE INDEX evil ON answers (checksum)",
            "PRAGMA user_version = 7",
            "PRAGMA application_id = 7",
        ],
    )
    def test_a_database_with_more_than_answers_in_it(self, filled, statement):
        with contextlib.closing(sqlite3.connect(filled)) as file, file:
            file.execute(statement)
        with pytest.raises(
            InputError, match="is a database, and not a cache that this version of coalmine wrote"
        ):
            use(filled)

    @pytest.mark.parametrize("value", ["'many'", "-1", "1e300", "9223372036854775807"])
    @pytest.mark.parametrize("confirmed", [False, True])
    def test_counts_that_are_none(self, filled, value, confirmed):
        with opened(filled) as cache:
            cache.bracket([], [12])
            if confirmed:
                cache.confirm([QUESTION], [4], measured=16, probes=1, repeats=1)
        with contextlib.closing(sqlite3.connect(filled)) as file, file:
            file.execute(f"UPDATE stretches SET times = {value}")
        with pytest.raises(InputError, match="is not a cache of coalmine, or is damaged"):
            use(filled)

    @pytest.mark.parametrize("table", ["answers", "unconfirmed", "stretches", "windows"])
    def test_tables_with_other_columns(self, filled, table):
        with contextlib.closing(sqlite3.connect(filled)) as file, file:
            file.execute(f"DROP TABLE {table}")
            file.execute(f"CREATE TABLE {table} (other)")
        with pytest.raises(InputError, match="is not a cache of coalmine, or is damaged"):
            use(filled)
