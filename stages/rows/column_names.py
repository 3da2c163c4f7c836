"""What a column's name suggests where no format reads it; which columns of a row were read.

Three kinds of columns must not be ignored without an option: those that the model should probably
see, those that rate an answer, and those that weigh a row. Names are compared without case,
underscores and hyphens, so that ``Starter_Code`` and ``starterCode`` are the same.
"""

import functools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from stages.contract import Row

if TYPE_CHECKING:
    from stages.kinds import Kind
if TYPE_CHECKING:
    pass


@functools.lru_cache(4096)
def plain(name: str) -> str:
    """The last part of a path in lower case, without underscores, hyphens and blanks."""
    last = name.replace("[]", "").rpartition(".")[2]
    return "".join(c for c in last.casefold() if c not in "_- ")


def _set(names: str) -> frozenset[str]:
    return frozenset(map(plain, names.split()))


CONTEXT = _set(
    "context contexts passage passages document documents article paragraph paragraphs table "
    "tables evidence knowledge background premise hypothesis facts supporting_facts "
    "retrieved_documents retrieved_context search_results code_context starter_code schema "
    "sql_context db_schema hint hints persona personas scenario story dialogue transcript "
    "choices options answer_choices candidates_text "
)
ASKED = _set(
    "question query problem prompt instruction instructions input inputs user user_prompt "
    "user_input user_message task_description problem_statement"
)
ANSWERED = _set(
    "answer response solution output outputs completion assistant target targets reply "
    "assistant_response model_response gold_answer final_answer generation"
)
# Names that often hold an answer: they are suggested as one, but may be ignored without an option.
ANSWERING = _set("generation generated_text summary revision correct corrected rewritten code")
CORRECTED = _set(
    "corrected correction corrected_answer corrected_output corrected_response revised "
    "revised_answer revised_output revised_response improved_answer improved_response"
)
SYSTEM = _set(
    "system system_prompt system_message system_text sys_prompt developer system_instruction"
)
HISTORY = _set("history chat_history conversation_history previous_turns dialog dialogue_history")
TOOLS = _set("tools functions tool_calls function_call available_tools tool_list rejected_tools")
REASONING = _set(
    "cot rationale rationales reasoning reasoning_content thinking thought thoughts think "
    "chain_of_thought chain_of_thoughts message_thinking explanation scratchpad analysis "
    "initial_reason_steps reason_steps reasoning_steps reasoning_trace deepseek_reasoning"
)
MEDIA = _set(
    "image images image_path image_paths img video videos audio audios pixel_values frames "
    "image_url image_urls audio_path video_path inline_data file_data input_image input_audio "
    "rejected_images rejected_videos rejected_audios objects bbox bboxes"
)
VERDICTS = _set(
    "label labels is_correct correct correctness iscorrect is_right right kto_tag kto_label tag "
    "reward rewards score scores rating ratings passed pass is_passed pass_rate verdict verdicts "
    "mistake_index error_index first_error step_rewards step_labels step_scores is_good good "
    "desirable is_desirable preferred is_preferred accepted is_accepted accept approved quality "
    "quality_score overall_score helpfulness thumbs_up thumbs upvoted valid is_valid success "
    "is_success resolved is_resolved wins win final_answer_correct judgement judgment grade "
    "overall_rating accuracy acc feedback_score toxicity harmful is_harmful unsafe is_unsafe "
    "is_safe safe"
)
# In these columns, numbers other than 1, 0 and -1 may be class indices, which have no order.
CLASSES = _set("label labels kto_tag kto_label tag")
# In these columns, a high number (or true) means that the answer is bad.
REVERSED = _set("toxicity harmful is_harmful unsafe is_unsafe")
# Index of a mistake: -1 or null where there is none; other values have no order.
PLACES = _set("mistake_index error_index first_error")
WEIGHTS = _set(
    "weight weights sample_weight sample_weights loss_weight loss_weights loss_mask mask masks "
    "example_weight importance"
)
FLAGS = _set(
    "weight train loss trainable training loss_weight loss_mask mask masked train_detail "
    "training_detail detail ignore ignored skip excluded exclude hidden prefix prefill partial "
    "cache_control continue"
)
TRAINED = _set("train trained training trainable loss")  # whether a row is trained: false or 0
# Numbers that give the position or length of a turn, not its quality.
BOOKKEEPING = _set(
    "id idx index number turn turn_id turn_index turn_number message_id parent_id msg_id step "
    "step_id call_id tool_call_id time timestamp ts date created created_at create_time "
    "created_utc updated_at update_time tokens token_count num_tokens n_tokens length len "
    "position order seq duration latency start end"
)

# Arguments of the chat template in a row; a build renders all rows with the same arguments.
ARGUMENTS = _set("enable_thinking chat_template_kwargs template_kwargs thinking_mode")

_SIDES = ("chosen", "rejected", "1", "2", "a", "b", "winner", "loser", "better", "worse")


def seen(name: str, kind: "Kind") -> str | None:
    """Why the model should probably see a column, as a clause; None for other columns."""
    word = plain(name)
    if word in SYSTEM or word in HISTORY or word in TOOLS:
        return "belongs to the conversation"
    if word in ARGUMENTS:
        return "is for the chat template, which gets the same arguments for all rows"
    if word in MEDIA:
        return "is not text, and only text is trained"
    if word in CONTEXT:
        return "looks like something that the model should read"
    if word in REASONING and kind.trains_answers:
        return "looks like reasoning"
    if word in CORRECTED and kind.trains_answers:
        return "looks like a better answer than the one that would be trained"
    if word in ASKED or (word in ANSWERED and kind.trains_answers):
        return "looks like a part of the conversation"
    return None


def rates(name: str, value: Any, kind: "Kind") -> bool:
    """Whether a column may say how good the answer beside it is."""
    word = plain(name)
    if kind.trains_answers:
        return word in VERDICTS and (word in _ALWAYS or _is_rating(value))
    if kind.compares:  # a score of either side that is spelled in a way no format knows
        stem = _without_side(word)
        return stem is not None and stem in _SCORE_STEMS
    return False


_ALWAYS = _set("label kto_tag kto_label verdict judgement judgment")
_WORDS = _set(
    "good bad true false yes no correct incorrect right wrong pass passed fail failed + -"
)


def _is_rating(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(map(_is_rating, value))
    if isinstance(value, str):
        return plain(value) in _WORDS or value.strip().lstrip("+-").replace(".", "", 1).isdigit()
    return isinstance(value, bool | int | float)


_SCORE_STEMS = _set("score scores rating reward margin overall_score quality preference_strength")


def _without_side(word: str) -> str | None:
    for end in _SIDES:
        for stem in (word.removeprefix(end), word.removesuffix(end)):
            if stem != word:
                return stem
    return "margin" if word in ("margin", "scoremargin", "preferencestrength") else None


@functools.lru_cache(4096)
def may_mean_more(name: str, kind: "Kind") -> bool:
    """Whether some value of a column must not be ignored without an option."""
    if seen(name, kind) or weighs(name) or plain(name) in TRAINED:
        return True
    return plain(name) in VERDICTS if kind.trains_answers else rates(name, None, kind)


def means_more(name: str, value: Any, kind: "Kind") -> bool:
    """Whether a value of a column may not be ignored without an option; see ``unread``."""
    if value in EMPTY:
        return False
    said = bool(seen(name, kind)) or weighs(name) or leaves_out(name, value)
    return said or rates(name, value, kind)


def weighs(name: str) -> bool:
    """Whether a column may weigh its row in the loss."""
    return plain(name) in WEIGHTS


def leaves_out(name: str, value: Any) -> bool:
    """Whether a column may say that its row is not to be trained."""
    return plain(name) in TRAINED and type(value) in (bool, int) and not value


def is_flag(name: str, value: Any) -> bool:
    """Whether a key of a turn may say how the turn is trained or how good it is."""
    word = plain(name)
    if isinstance(value, bool) or word in FLAGS:
        return True
    number = isinstance(value, int | float)
    return word in VERDICTS or (number and word not in BOOKKEEPING)


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Up to three names that look like one."""
    import difflib

    by_word = {plain(one): one for one in known}
    return [by_word[w] for w in difflib.get_close_matches(plain(name), by_word, 3, 0.6)]


# A row that remembers which of its columns were read.
#
# A format reads a row by its columns; a column that it did not read is not in the example. So
# unread columns are noticed without a list of the columns that each format knows.


# Columns that are passed on whole: their keys are those of the tool or the call.
_PASSED_ON = frozenset(("tools", "functions", "tool_calls", "function_call"))
EMPTY: tuple[Any, ...] = (None, "", [], {})  # values that are the same as none


class Watched(dict[str, Any]):
    """A row, or an object inside one. ``row[key]`` and ``row.get(key)`` count as reading.

    ``peek`` looks at a value without counting as reading.
    """

    __slots__ = ("_keys", "_lists", "_read")

    def __init__(self, row: Row) -> None:
        super().__init__(row)
        self._read: set[str] = set()
        self._lists: set[str] | None = None  # columns with a list of objects that are watched
        self._keys: set[tuple[str, str]] | None = None

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if key in self._read:  # what is inside is watched already
            return value
        self._read.add(key)
        kind = type(value)
        if kind is str or key in _PASSED_ON:
            return value
        if kind is dict:
            value = self[key] = Watched(value)
        elif kind is list and _has_objects(value):
            value = self[key] = [Watched(one) if type(one) is dict else one for one in value]
            self._lists = {*(self._lists or ()), key}
        return value

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a column, which counts as read."""
        if key not in self:
            return default
        return self[key]

    @property
    def read_columns(self) -> frozenset[str]:
        """The columns that were read."""
        return frozenset(self._read)

    def read_keys(self, column: str) -> frozenset[str]:
        """The keys of a column's turns that were read besides role and text."""
        return frozenset(key for name, key in self._keys or () if name == column)

    def unread(self, before: str = "") -> Iterator[tuple[str, Any]]:
        """Path and value of everything that was not read and is not empty.

        An object of which no key was read counts as used whole. In a list of objects, a key counts
        as read when it was read in one of them; of others, the path comes once for each object.
        """
        if not self._read and before:
            return
        for key, value in self.items():
            if key not in self._read:
                if value not in EMPTY:
                    yield f"{before}{key}", value
            elif isinstance(value, Watched):
                yield from value.unread(f"{before}{key}.")
            elif self._lists and key in self._lists:
                yield from _unread_in(value, f"{before}{key}[].")


class Overlaid(Watched):
    """A row with the values of an object inside it on top; a read counts where the value is."""

    __slots__ = ("_over", "_under")

    def __init__(self, under: Row, over: Row) -> None:
        super().__init__({**under, **over})
        self._under, self._over = under, over

    def __getitem__(self, key: str) -> Any:
        return self._over[key] if key in self._over else self._under[key]


def peek(row: Row, key: str) -> Any:
    """The value of a column, which does not count as read; None where there is none."""
    return dict.get(row, key)


def read_key(row: Row, column: str, key: str) -> None:
    """Count a key of a column's turns as read; turns are not watched themselves."""
    if isinstance(row, Watched):
        row._keys = {*(row._keys or ()), (column, key)}


def _has_objects(values: list[Any]) -> bool:
    """Whether a list has objects that are no turns; keys of turns are in ``Message.fields``.

    Rows have thousands of token ids, so a list is searched without a step of Python for each item.
    """
    if dict not in map(type, values):
        return False
    first = values[0] if type(values[0]) is dict else next(o for o in values if type(o) is dict)
    return "role" not in first and "from" not in first


def _unread_in(values: list[Any], before: str) -> Iterator[tuple[str, Any]]:
    rows = [one for one in values if isinstance(one, Watched)]
    read = set().union(*(row._read for row in rows))
    for row in rows:
        for path, value in row.unread(before):
            if path.removeprefix(before) not in read:
                yield path, value
