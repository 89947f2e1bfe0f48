from coalmine.corpus.deduplication.deduplicating import deduplicate as deduplicate
from coalmine.corpus.deduplication.options import DedupOptions as DedupOptions
from coalmine.corpus.deduplication.report import Deduplication as Deduplication
from coalmine.corpus.files.documents import CorpusDocument as CorpusDocument, Fields as Fields
from coalmine.corpus.files.embedded import (
    embedded_documents as embedded_documents,
    write_embedded_corpus as write_embedded_corpus,
)
from coalmine.corpus.files.reading import read_documents as read_documents
from coalmine.corpus.index.building import build_index as build_index
from coalmine.corpus.index.options import IndexOptions as IndexOptions
from coalmine.corpus.index.queries import CorpusIndex as CorpusIndex
from coalmine.corpus.index.sampling import (
    normalized_sample as normalized_sample,
    repeated_sequences as repeated_sequences,
    uniform_sample as uniform_sample,
)
from coalmine.corpus.planting.importing import import_canaries as import_canaries
from coalmine.corpus.planting.manifest import CanarySet as CanarySet
from coalmine.corpus.planting.options import ImportOptions as ImportOptions, PlantOptions as PlantOptions
from coalmine.corpus.planting.planting import Planted as Planted, plant as plant
from coalmine.corpus.survival.checking import check_survival as check_survival
from coalmine.corpus.survival.results import Survival as Survival, read_survival as read_survival
from coalmine.corpus.redaction.options import RedactOptions as RedactOptions
from coalmine.corpus.redaction.redacting import redact as redact
from coalmine.corpus.redaction.report import Redaction as Redaction
from coalmine.corpus.planting.unseen import unseen_texts as unseen_texts
from coalmine.corpus.planting.verifying import Verification as Verification, verify_planted as verify_planted
from coalmine.corpus.secrets.canaries import NaturalCanaries as NaturalCanaries
from coalmine.corpus.secrets.natural import NaturalOptions as NaturalOptions
from coalmine.corpus.secrets.people import canaries_of_records as canaries_of_records
from coalmine.corpus.secrets.scanned import canaries_of_scan as canaries_of_scan
from coalmine.corpus.secrets.results import (
    DistinctSecret as DistinctSecret,
    Scan as Scan,
    SecretOccurrence as SecretOccurrence,
    distinct_in as distinct_in,
    occurrences_in as occurrences_in,
    read_scan as read_scan,
)
from coalmine.corpus.secrets.scanning import scan as scan
