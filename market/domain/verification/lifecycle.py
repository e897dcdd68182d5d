"""State machines of verification, in the form of :mod:`market.domain.lifecycle`."""

from enum import StrEnum


class WindowStatus(StrEnum):
    CLOSED = "closed"  # its units are fixed; the root is not final on chain
    COMMITTED = "committed"  # root final on chain; the seed's block is known, the seed is not
    LATCHED = "latched"  # seed final on chain; its units are being verified
    DECIDED = "decided"  # every unit is verified or rejected


class WindowEvent(StrEnum):
    COMMIT = "commit"
    LATCH = "latch"
    DECIDE = "decide"
    REOPEN = "reopen"


_W, _WE = WindowStatus, WindowEvent
WINDOW: dict[tuple[WindowStatus, WindowEvent], WindowStatus] = {
    (_W.CLOSED, _WE.COMMIT): _W.COMMITTED,
    (_W.COMMITTED, _WE.LATCH): _W.LATCHED,
    (_W.LATCHED, _WE.DECIDE): _W.DECIDED,
    (_W.DECIDED, _WE.REOPEN): _W.LATCHED,
}


class OmissionStatus(StrEnum):
    OPEN = "open"  # the provider claims that no window has its acknowledged commitment
    ANSWERED = "answered"  # the market proved its inclusion in time
    COMPENSATED = "compensated"  # no proof in time; the operator's bond paid the provider


class OmissionEvent(StrEnum):
    ANSWER = "answer"
    COMPENSATE = "compensate"


_O, _OE = OmissionStatus, OmissionEvent
OMISSION: dict[tuple[OmissionStatus, OmissionEvent], OmissionStatus] = {
    (_O.OPEN, _OE.ANSWER): _O.ANSWERED,
    (_O.OPEN, _OE.COMPENSATE): _O.COMPENSATED,
}


class SampleStatus(StrEnum):
    DRAWN = "drawn"  # the provider must reveal the segment's start state
    REVEALED = "revealed"  # start state available; verifiers replay the segment
    PASSED = "passed"  # a verifier computed the claimed leaf, or two where another dissented
    FAILED = "failed"  # two verifiers computed another leaf, or the state was not revealed in time
    DROPPED = "dropped"  # the unit was decided without it


class SampleEvent(StrEnum):
    REVEAL = "reveal"
    PASS = "pass"
    FAIL = "fail"
    CLEAR = "clear"
    REOPEN = "reopen"
    DROP = "drop"


_S, _SE = SampleStatus, SampleEvent
SAMPLE_OPEN = frozenset({_S.DRAWN, _S.REVEALED})
SAMPLE: dict[tuple[SampleStatus, SampleEvent], SampleStatus] = {
    (_S.DRAWN, _SE.REVEAL): _S.REVEALED,
    (_S.DRAWN, _SE.FAIL): _S.FAILED,
    (_S.DRAWN, _SE.DROP): _S.DROPPED,
    (_S.REVEALED, _SE.PASS): _S.PASSED,
    (_S.REVEALED, _SE.FAIL): _S.FAILED,
    (_S.REVEALED, _SE.DROP): _S.DROPPED,
    (_S.FAILED, _SE.CLEAR): _S.PASSED,  # a committee on chain found it correct against the verifiers
    (_S.FAILED, _SE.REOPEN): _S.REVEALED,  # a committee found them wrong on another segment of the unit
}


class CanaryStatus(StrEnum):
    PREPARED = "prepared"  # its state is being stored
    PLANTED = "planted"  # verifiers replay it
    ANSWERED = "answered"  # enough of them agree
    DROPPED = "dropped"  # no verifier is left and they do not agree; or its state was not stored


class CanaryEvent(StrEnum):
    PLANT = "plant"
    ANSWER = "answer"
    DROP = "drop"


_K, _KE = CanaryStatus, CanaryEvent
CANARY: dict[tuple[CanaryStatus, CanaryEvent], CanaryStatus] = {
    (_K.PREPARED, _KE.PLANT): _K.PLANTED,
    (_K.PREPARED, _KE.DROP): _K.DROPPED,
    (_K.PLANTED, _KE.ANSWER): _K.ANSWERED,
    (_K.PLANTED, _KE.DROP): _K.DROPPED,
}


class ComparisonStatus(StrEnum):
    ASKED = "asked"  # a verifier of another class replays the segment
    COMPUTED = "computed"  # its end state is stored; the provider's is requested
    PASSED = "passed"  # within tolerance
    FAILED = "failed"  # beyond tolerance; a verifier of the unit's class must replay


class ComparisonEvent(StrEnum):
    COMPUTE = "compute"
    PASS = "pass"
    FAIL = "fail"


_X, _XE = ComparisonStatus, ComparisonEvent
COMPARISON: dict[tuple[ComparisonStatus, ComparisonEvent], ComparisonStatus] = {
    (_X.ASKED, _XE.COMPUTE): _X.COMPUTED,
    (_X.ASKED, _XE.FAIL): _X.FAILED,
    (_X.COMPUTED, _XE.PASS): _X.PASSED,
    (_X.COMPUTED, _XE.FAIL): _X.FAILED,
}


class ReplayStatus(StrEnum):
    ASSIGNED = "assigned"  # the verifier has a lease
    COMMITTED = "committed"  # the verifier sent the hash of its result
    AGREED = "agreed"  # its result is the claimed leaf
    DISAGREED = "disagreed"
    OVERRULED = "overruled"  # outvoted: two others agree on another result
    ABANDONED = "abandoned"  # no result


class ReplayEvent(StrEnum):
    ASSIGN = "assign"
    COMMIT = "commit"
    AGREE = "agree"
    DISAGREE = "disagree"
    OVERRULE = "overrule"
    ABANDON = "abandon"


_R, _RE = ReplayStatus, ReplayEvent
REPLAY: dict[tuple[ReplayStatus, ReplayEvent], ReplayStatus] = {
    (_R.ASSIGNED, _RE.COMMIT): _R.COMMITTED,
    (_R.ASSIGNED, _RE.DISAGREE): _R.DISAGREED,  # its training diverged, so it has no leaf to commit to
    (_R.ASSIGNED, _RE.ABANDON): _R.ABANDONED,
    (_R.COMMITTED, _RE.AGREE): _R.AGREED,
    (_R.COMMITTED, _RE.DISAGREE): _R.DISAGREED,
    (_R.COMMITTED, _RE.ABANDON): _R.ABANDONED,
    (_R.DISAGREED, _RE.OVERRULE): _R.OVERRULED,
    (_R.AGREED, _RE.OVERRULE): _R.OVERRULED,
    (_R.ABANDONED, _RE.ASSIGN): _R.ASSIGNED,  # no other verifier is left
}
