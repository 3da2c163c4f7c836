"""The files beside the manifest as records: run, serving, rejected rows.

Those of ``validation.json`` and ``audits.json`` are in ``stages.findings``.
"""

from collections.abc import Mapping
from dataclasses import field

from pipeline.manifest import counts, json_records
from stages.findings import OPTIONAL, SPARSE, JsonRecord
from stages.tokenizers.claims import Repair

RUN = "run.json"
SERVING = "serving.json"
VALIDATION = "validation.json"
REPORT = "report.html"
AUDITS = "audits.json"
REJECTS = "rejects.jsonl"
TOKENIZER = "tokenizer"


class Change(JsonRecord):
    """A number before and after; ``change`` is relative, None where nothing was before."""

    before: float | None
    after: float | None
    change: float | None


class RunRecord(json_records.Sealed):
    """``run.json``: all that may differ between two equal builds.

    Attributes:
        started: UTC; ``seconds``: of the whole run.
        tokenizer_source: where the tokenizer came from; ``fetched``: what was downloaded for it.
        model: as it was given.
        inputs: addresses or paths as they were opened.
        drift: numbers that differ from the build that was replaced; None when there was none.
        files_left_out: names of files in named folders that no reader is for.
    """

    started: str
    seconds: float
    peak_memory_bytes: int
    workers: int
    engine: str
    tokenizer_source: str
    tokenizer_revision: str | None
    model: str
    inputs: tuple[str, ...]
    python: str
    drift: Mapping[str, Change] | None
    files_left_out: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    fetched: str | None = field(default=None, metadata=OPTIONAL)


class Marker(JsonRecord):
    """A custom stop marker, what it is to the tokenizers, and so how to stop at it.

    Attributes:
        ids: of the build's tokenizer.
        stock_tokenizer_sees_it: an untouched tokenizer has it; None where that cannot be known.
    """

    text: str
    ids: tuple[int, ...]
    is_one_token: bool
    stock_tokenizer_sees_it: bool | None
    use: str
    why: str


class Serving(JsonRecord, kw_only=True):
    """``serving.json``: where an answer ends, for servers and trainers.

    Attributes:
        max_new_tokens: tokens of the trained answers; None where nothing was measured.
        added_tokens: ids by text; ``needs_this_tokenizer``: how each server is given them.
        step_token, good_token, bad_token: prm only.
        engines: a snippet per engine.
        chat_template: the template's arguments for the prompts that were trained, per engine.
        repairs: a sentence each.
    """

    stop_strings: tuple[str, ...]
    stop_token_ids: tuple[int, ...]
    include_stop_str_in_output: bool
    eos_token_id: int
    end_of_turn: str
    end_of_turn_id: int
    pad_token_id: int
    max_new_tokens: counts.AnswerTokens | None = field(default=None, metadata=OPTIONAL)
    added_tokens: Mapping[str, int]
    needs_this_tokenizer: Mapping[str, str] = field(default_factory=dict, metadata=OPTIONAL)
    step_token: str | None = field(default=None, metadata=OPTIONAL)
    good_token: str | None = field(default=None, metadata=OPTIONAL)
    bad_token: str | None = field(default=None, metadata=OPTIONAL)
    markers: tuple[Marker, ...]
    engines: Mapping[str, object]
    chat_template: object = field(default=None, metadata=OPTIONAL)
    repairs: tuple[str, ...] = field(default=(), metadata=OPTIONAL)


class Reject(JsonRecord):
    """A line of ``rejects.jsonl``: one refused row.

    Attributes:
        id: as ``row_id`` has it; ``line`` counts from 1.
        offset: of its first byte in the file; None where rows have none.
        code: a stable word; ``detail``: what is wrong with this row.
        raw: the row as it was read.
    """

    id: str
    source: str
    line: int
    offset: int | None
    stage: str
    code: str
    detail: str
    raw: str


# The manifest's ``model``: names and ids of its tokens, and hashes of the tokenizer.


class PairRecord(JsonRecord):
    """How an encoder's two texts are framed, and which positions it has.

    Attributes:
        before, between, after: special tokens before the prompt, between prompt and answer, and
            after the answer.
        token_types: the answer's tokens are of type 1.
        position_offset: position of the first token.
        positions: tokens that the model has positions for.
        read_at: ``first``, where the reward is read.
    """

    before: tuple[str, ...]
    between: tuple[str, ...]
    after: tuple[str, ...]
    token_types: bool
    position_offset: int
    positions: int
    read_at: str


class ModelRecord(JsonRecord):
    """The model that a build is for.

    Attributes:
        revision: the hub's commit; None where the tokenizer comes from elsewhere.
        step_token, good_token, bad_token: None in other tasks than prm, as are their ids.
        vocab_size: ids of the tokenizer; ``embedding_size``: rows of the model's embedding.
        pair: None for decoders.
        added_tokens: ids of the tokens that the user registered, by text.
        end_of_call: the token that ends a turn of tool calls; None where ``end_of_turn`` does.
        recurrent: the ``model_type`` of a model with recurrent layers.
    """

    name: str
    revision: str | None
    tokenizer_sha256: str
    chat_template_sha256: str
    eos_token: str
    eos_token_id: int
    end_of_turn: str
    end_of_turn_id: int
    pad_token: str
    pad_token_id: int
    padding_side: str
    bos_policy: str
    step_token: str | None
    step_token_id: int | None
    good_token: str | None
    good_token_id: int | None
    bad_token: str | None
    bad_token_id: int | None
    vocab_size: int
    embedding_size: int
    date_string: str
    is_base: bool
    family: str
    pair: PairRecord | None = field(default=None, metadata=OPTIONAL)
    added_tokens: Mapping[str, int] = field(default_factory=dict, metadata=OPTIONAL)
    end_of_call: str | None = field(default=None, metadata=SPARSE)
    end_of_call_id: int | None = field(default=None, metadata=SPARSE)
    recurrent: str = field(default="", metadata=SPARSE)
    repairs: tuple[Repair, ...] = field(default=(), metadata=OPTIONAL)


# What rows had in common with evaluation files: in the manifest, and each hit in a file.


CONTAMINATED = "contaminated.jsonl"
NEAR_DUPLICATES = "near_duplicates.jsonl"


class EvaluationRecord(JsonRecord):
    """One evaluation file.

    Attributes:
        column: that its questions were read from.
        questions: that rows were searched for; ``not_judged``: lines of it without letters and
            digits there, which can be found in no row.
        found: questions that some row was left out for; ``rows``, ``examples``: left out for them.
    """

    name: str
    sha256: str
    column: str
    questions: int
    not_judged: tuple[int, ...]
    found: int
    rows: int
    examples: int


class Decontamination(JsonRecord):
    """The manifest's ``decontamination``: how rows were compared with evaluation files.

    Attributes:
        words: of a run; ``share``: of a question's words in shared runs, more than which leaves a
            row out.
        compared: ``question`` or ``row``.
    """

    words: int
    share: float
    compared: str
    evaluations: tuple[EvaluationRecord, ...]


class Hit(JsonRecord):
    """A line of ``contaminated.jsonl``: an example that was left out, and a question for which.

    Attributes:
        id: as ``row_id`` has it.
        evaluation: its name; ``file``: its file's; ``line``: of the question there, from 1.
        share: of the question's words that are in shared runs; 1 where it is contained.
        contained: all letters and digits of the question stand in the row side by side.
        match: the longest shared run of words, as they were compared.
        said: the row's text around it; ``question``: the beginning of the question.
    """

    id: str
    evaluation: str
    file: str
    line: int
    share: float
    contained: bool
    match: str
    said: str
    question: str


class Likeness(JsonRecord):
    """The manifest's ``near_duplicates``: how rows were compared with each other.

    Attributes:
        likeness: from which on rows are alike; ``words``: of a run; ``compared``: ``row`` or
            ``question``.
        signatures: what made them.
        clusters: examples that stay for others; ``rows``, ``examples``: left out for them.
    """

    likeness: float
    words: int
    compared: str
    signatures: str
    clusters: int
    rows: int
    examples: int


class NearDuplicate(JsonRecord):
    """A line of ``near_duplicates.jsonl``: an example that was left out, and the one that stays.

    Attributes:
        id, kept: of both, as ``row_id`` has it.
        likeness: of the two, estimated; below the limit where others lie between them.
        said, kept_said: their texts from where they begin to differ, and a little before.
    """

    id: str
    kept: str
    likeness: float
    said: str
    kept_said: str
