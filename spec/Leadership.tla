------------------------------ MODULE Leadership ------------------------------
(***************************************************************************)
(* The heavy slot, and handoffs: claims, their confirmation, their theft   *)
(* from who is gone, and leadership that moves to a member that is free.   *)
(*                                                                         *)
(* Elections are an assumption here: one primary a term, at any moment,    *)
(* and any members learn of it at once. Those that have a vote besides     *)
(* Member are not modelled; so a primary that they have left for a later   *)
(* one resigns within the election timeout, by which it hears of no        *)
(* majority. Gossip to a primary is one step. What a primary confirms is   *)
(* a message, which may arrive late. Numbers in round brackets, as (L2),   *)
(* are those of the rules listed in README.md.                             *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Member,
    Leader,             \* those that may become primary
    Claimant,           \* those that have tasks as secondaries
    Nil,
    Slots,              \* so many may be busy at a time
    Timeout,            \* the election timeout, in ticks
    MaxTerm,
    MaxTime,
    MaxClaims,          \* of each member
    Handoffs,           \* whether leadership is handed over, too
    Unsafe

Variants == {
    "ConfirmEverybody",         \* (L1)
    "ConfirmUnheard",           \* who was not heard of in this term is taken for free (L2)
    "GiveUpUnheardSoon",        \* and for gone after one election timeout (L3)
    "BelieveAnyTerm",           \* what a primary of another term has confirmed (L4)
    "BelieveLateGrants",        \* a member begins whenever a confirmation arrives (L5)
    "BeginByOldConfirmation",   \* and one that was in time once serves every later task (L5)
    "HandOverToClaimant",       \* (L6)
    "ConfirmDuringHandoff"      \* (L6)
}

ASSUME Unsafe \subseteq Variants /\ Leader \subseteq Member /\ Claimant \subseteq Member

VARIABLES
    now,
    term,           \* of each member
    isPrimary,
    since,          \* of a primary: when it was elected
    lostAt,         \* of a primary: when its voters left it for a later one; Nil: they did not
    peers,          \* of a primary: of each other member what it last said of itself, and when; Nil: nothing in this term or before
    grants,         \* of a primary: of each member the claim that it has confirmed; 0: none
    handoff,        \* of a primary: to whom it hands over; Nil: to nobody
    claim,          \* of each member the number of its claim; 0: none
    claims,         \* how many it has had
    isConfirmed,
    leaseEnds,      \* until when the last confirmation is to be believed
    isBusy,
    message,        \* to each member: what a primary has confirmed; Nil: nothing
    \* Not of any member: who was taken for gone since it began.
    givenUp,
    \* Not of any member: whether somebody was handed leadership while it was busy.
    handedToBusy

member == <<claim, claims, isConfirmed, leaseEnds, isBusy>>
primary == <<isPrimary, since, lostAt, peers, grants, handoff>>
vars == <<now, term, primary, member, message, givenUp, handedToBusy>>

Symmetry ==
    {f \in Permutations(Member) :
        \A i \in Member : (i \in Leader <=> f[i] \in Leader) /\ (i \in Claimant <=> f[i] \in Claimant)}

Max(a, b) == IF a > b THEN a ELSE b

Terms == {term[i] : i \in Member}
LastTerm == CHOOSE t \in Terms : \A other \in Terms : other <= t

NoPeers == [j \in Member |-> Nil]
NoGrants == [j \in Member |-> 0]

Init ==
    /\ now = 0
    /\ term = [i \in Member |-> 0]
    /\ isPrimary = [i \in Member |-> FALSE]
    /\ since = [i \in Member |-> 0]
    /\ lostAt = [i \in Member |-> Nil]
    /\ peers = [i \in Member |-> NoPeers]
    /\ grants = [i \in Member |-> NoGrants]
    /\ handoff = [i \in Member |-> Nil]
    /\ claim = [i \in Member |-> 0]
    /\ claims = [i \in Member |-> 0]
    /\ isConfirmed = [i \in Member |-> FALSE]
    /\ leaseEnds = [i \in Member |-> 0]
    /\ isBusy = [i \in Member |-> FALSE]
    /\ message = [i \in Member |-> Nil]
    /\ givenUp = {}
    /\ handedToBusy = FALSE

-----------------------------------------------------------------------------
(* What a primary knows *)

HeardInTerm(p, m) == peers[p][m] # Nil /\ peers[p][m].term = term[p]

\* A member that was heard of in this term is gone after one election timeout. Of another an earlier primary may have
\* heard for one, and what it confirmed then is believed for a second one (L3).
Gone(p, m, at) ==
    /\ peers[p][m] # Nil => at >= peers[p][m].at + Timeout
    /\ HeardInTerm(p, m) \/ at >= since[p] + (IF "GiveUpUnheardSoon" \in Unsafe THEN 1 ELSE 2) * Timeout

MayBeBusy(p, m) ==
    IF m = p THEN isBusy[p]
    ELSE
        /\ ~ Gone(p, m, now)
        /\ \/ grants[p][m] # 0
           \/ IF HeardInTerm(p, m)
              THEN peers[p][m].isBusy \/ peers[p][m].isConfirmed
              ELSE "ConfirmUnheard" \notin Unsafe  \* (L2)

HasSlotFor(p, m) ==
    \/ Cardinality({j \in Member \ {m} : MayBeBusy(p, j)}) < Slots  \* (L1)
    \/ "ConfirmEverybody" \in Unsafe

\* What was confirmed of who is gone is stolen.
Kept(p) == [j \in Member |-> IF Gone(p, j, now) THEN 0 ELSE grants[p][j]]

-----------------------------------------------------------------------------
(* Elections *)

Follow(learners, next) ==
    /\ term' = [i \in Member |-> IF i \in learners THEN next ELSE term[i]]
    /\ lostAt' = [i \in Member |->
           IF i \in learners THEN Nil ELSE IF isPrimary[i] /\ lostAt[i] = Nil THEN now ELSE lostAt[i]]
    /\ grants' = [i \in Member |-> IF i \in learners THEN NoGrants ELSE grants[i]]
    /\ handoff' = [i \in Member |-> IF i \in learners THEN Nil ELSE handoff[i]]

\* A primary keeps no claim but that of a task which runs.
Lead(p, learners) ==
    /\ LastTerm < MaxTerm
    /\ LET keeps == isConfirmed[p] /\ isBusy[p]
       IN  /\ claim' = [claim EXCEPT ![p] = IF keeps THEN @ ELSE 0]
           /\ isConfirmed' = [isConfirmed EXCEPT ![p] = keeps]
    /\ Follow(learners \union {p}, LastTerm + 1)
    /\ isPrimary' = [i \in Member |-> i = p \/ (isPrimary[i] /\ i \notin learners)]
    /\ since' = [i \in Member |-> IF i = p THEN now ELSE IF i \in learners THEN 0 ELSE since[i]]
    /\ peers' = [i \in Member |-> IF i = p \/ i \in learners THEN NoPeers ELSE peers[i]]

BecomePrimary(p, learners) ==
    /\ p \in Leader
    /\ ~ isPrimary[p]
    /\ Lead(p, learners)
    /\ UNCHANGED <<now, claims, leaseEnds, isBusy, message, givenUp, handedToBusy>>

\* Of a primary that resigns nothing is left.
Forget(p) ==
    /\ isPrimary' = [isPrimary EXCEPT ![p] = FALSE]
    /\ since' = [since EXCEPT ![p] = 0]
    /\ lostAt' = [lostAt EXCEPT ![p] = Nil]
    /\ peers' = [peers EXCEPT ![p] = NoPeers]
    /\ grants' = [grants EXCEPT ![p] = NoGrants]
    /\ handoff' = [handoff EXCEPT ![p] = Nil]

Resign(p) ==
    /\ isPrimary[p]
    /\ Forget(p)
    /\ UNCHANGED <<now, term, member, message, givenUp, handedToBusy>>

LearnTerm(i) ==
    /\ term[i] < LastTerm
    /\ term' = [term EXCEPT ![i] = LastTerm]
    /\ Forget(i)
    /\ UNCHANGED <<now, member, message, givenUp, handedToBusy>>

-----------------------------------------------------------------------------
(* Gossip *)

\* What is heard of a member that has another claim, or none, ends what was confirmed.
Hear(p, m) ==
    /\ isPrimary[p]
    /\ m # p
    /\ term[m] <= term[p]
    /\ LET said == [at |-> now, term |-> term[m], claim |-> claim[m], isConfirmed |-> isConfirmed[m], isBusy |-> isBusy[m]]
       IN  /\ said # peers[p][m]
           /\ peers' = [peers EXCEPT ![p][m] = said]
    /\ grants' = [grants EXCEPT ![p][m] = IF @ = claim[m] THEN @ ELSE 0]
    /\ UNCHANGED <<now, term, isPrimary, since, lostAt, handoff, member, message, givenUp, handedToBusy>>

Confirm(p, m) ==
    /\ isPrimary[p]
    /\ m # p
    /\ handoff[p] = Nil \/ "ConfirmDuringHandoff" \in Unsafe  \* (L6)
    /\ peers[p][m] # Nil /\ peers[p][m].claim # 0 /\ ~ Gone(p, m, now)
    /\ grants[p][m] = 0
    /\ HasSlotFor(p, m)
    /\ grants' = [grants EXCEPT ![p] = [Kept(p) EXCEPT ![m] = peers[p][m].claim]]
    /\ UNCHANGED <<now, term, isPrimary, since, lostAt, peers, handoff, member, message, givenUp, handedToBusy>>

\* One message at a time is on its way to a member; it may be lost by the next.
Tell(p, m) ==
    /\ isPrimary[p]
    /\ grants[p][m] # 0
    /\ ~ Gone(p, m, now)
    /\ LET said == [term |-> term[p], claim |-> grants[p][m], heardAt |-> peers[p][m].at]
       IN  /\ said # message[m]
           /\ message' = [message EXCEPT ![m] = said]
    /\ UNCHANGED <<now, term, primary, member, givenUp, handedToBusy>>

\* A confirmation is believed from a primary of the member's own term (L4), and for as long as its claim cannot have been
\* stolen: for the election timeout since the primary heard what the member said (L5).
TakeGrant(m) ==
    /\ message[m] # Nil
    /\ message' = [message EXCEPT ![m] = Nil]
    /\ LET said == message[m]
           isMine == claim[m] # 0 /\ said.claim = claim[m] /\ ~ isPrimary[m]
           isBelieved == isMine /\ (said.term = term[m] \/ "BelieveAnyTerm" \in Unsafe)
           ends == said.heardAt + Timeout
           isInTime == now < ends \/ "BelieveLateGrants" \in Unsafe
       IN  /\ isConfirmed' = [isConfirmed EXCEPT ![m] = @ \/ (isBelieved /\ isInTime)]
           /\ leaseEnds' = [leaseEnds EXCEPT ![m] = IF isBelieved THEN Max(@, ends) ELSE @]
    /\ UNCHANGED <<now, term, primary, claim, claims, isBusy, givenUp, handedToBusy>>

-----------------------------------------------------------------------------
(* Tasks *)

Claim(m) ==
    /\ m \in Claimant
    /\ ~ isPrimary[m]
    /\ claim[m] = 0 /\ ~ isBusy[m]
    /\ claims[m] < MaxClaims
    /\ claims' = [claims EXCEPT ![m] = @ + 1]
    /\ claim' = [claim EXCEPT ![m] = claims[m] + 1]
    /\ leaseEnds' = [leaseEnds EXCEPT ![m] = 0]
    /\ UNCHANGED <<now, term, primary, isConfirmed, isBusy, message, givenUp, handedToBusy>>

BeginAsSecondary(m) ==
    /\ ~ isPrimary[m]
    /\ ~ isBusy[m]
    /\ isConfirmed[m]
    /\ now < leaseEnds[m] \/ Unsafe \intersect {"BelieveLateGrants", "BeginByOldConfirmation"} # {}  \* (L5)
    /\ isBusy' = [isBusy EXCEPT ![m] = TRUE]
    /\ UNCHANGED <<now, term, primary, claim, claims, isConfirmed, leaseEnds, message, givenUp, handedToBusy>>

\* A primary asks itself.
BeginAsPrimary(p) ==
    /\ isPrimary[p]
    /\ ~ isBusy[p]
    /\ handoff[p] = Nil
    /\ HasSlotFor(p, p)
    /\ isBusy' = [isBusy EXCEPT ![p] = TRUE]
    /\ grants' = [grants EXCEPT ![p] = Kept(p)]
    /\ UNCHANGED <<now, term, isPrimary, since, lostAt, peers, handoff>>
    /\ UNCHANGED <<claim, claims, isConfirmed, leaseEnds, message, givenUp, handedToBusy>>

\* A task ends, and the claim with it, unless another one waits.
End(m, waits) ==
    /\ isBusy[m]
    /\ waits => ~ isPrimary[m]
    /\ isBusy' = [isBusy EXCEPT ![m] = FALSE]
    /\ claim' = [claim EXCEPT ![m] = IF waits THEN @ ELSE 0]
    /\ isConfirmed' = [isConfirmed EXCEPT ![m] = @ /\ waits]
    /\ givenUp' = givenUp \ {m}
    /\ UNCHANGED <<now, term, primary, claims, leaseEnds, message, handedToBusy>>

-----------------------------------------------------------------------------
(* Handoffs *)

IsCandidate(p, m) ==
    /\ m # p
    /\ m \in Leader
    /\ HeardInTerm(p, m)
    /\ peers[p][m].at = now
    /\ ~ peers[p][m].isBusy
    /\ peers[p][m].claim = 0 \/ "HandOverToClaimant" \in Unsafe  \* (L6)
    /\ grants[p][m] = 0 \/ "HandOverToClaimant" \in Unsafe

HandOver(p, m) ==
    /\ Handoffs
    /\ isPrimary[p]
    /\ handoff[p] = Nil
    /\ IsCandidate(p, m)
    /\ handoff' = [handoff EXCEPT ![p] = m]
    /\ UNCHANGED <<now, term, isPrimary, since, lostAt, peers, grants, member, message, givenUp, handedToBusy>>

\* It has every entry: the primary resigns, and it is elected. Whoever else learns of it does later.
StepUp(p) ==
    /\ isPrimary[p]
    /\ handoff[p] # Nil
    /\ term[handoff[p]] = term[p]
    /\ Lead(handoff[p], {p})
    /\ handedToBusy' = (handedToBusy \/ isBusy[handoff[p]])
    /\ UNCHANGED <<now, claims, leaseEnds, isBusy, message, givenUp>>

GiveUpHandoff(p) ==
    /\ handoff[p] # Nil
    /\ handoff' = [handoff EXCEPT ![p] = Nil]
    /\ UNCHANGED <<now, term, isPrimary, since, lostAt, peers, grants, member, message, givenUp, handedToBusy>>

-----------------------------------------------------------------------------

\* A primary that its voters have left resigns before the election timeout is over.
Tick ==
    /\ now < MaxTime
    /\ \A p \in Member : isPrimary[p] /\ lostAt[p] # Nil => now + 1 < lostAt[p] + Timeout
    /\ now' = now + 1
    /\ givenUp' = givenUp \union
           {m \in Member : isBusy[m] /\ \E p \in Member \ {m} : isPrimary[p] /\ Gone(p, m, now + 1)}
    /\ UNCHANGED <<term, primary, member, message, handedToBusy>>

Next ==
    \/ Tick
    \/ \E i \in Member :
        \/ \E learners \in SUBSET (Member \ {i}) : BecomePrimary(i, learners)
        \/ Resign(i)
        \/ LearnTerm(i)
        \/ TakeGrant(i)
        \/ Claim(i)
        \/ BeginAsSecondary(i)
        \/ BeginAsPrimary(i)
        \/ \E waits \in BOOLEAN : End(i, waits)
        \/ StepUp(i)
        \/ GiveUpHandoff(i)
    \/ \E p, m \in Member :
        \/ Hear(p, m)
        \/ Confirm(p, m)
        \/ Tell(p, m)
        \/ HandOver(p, m)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Properties *)

\* Of those who began by a confirmed claim, and were not taken for gone since, there are never more than there are slots.
NeverMajorityBusy == Cardinality({m \in Member : isBusy[m]} \ givenUp) <= Slots

\* Leadership is handed to nobody who is in a heavy task.
HandedToFree == ~ handedToBusy

OnePrimaryPerTerm == \A i, j \in Member : isPrimary[i] /\ isPrimary[j] /\ term[i] = term[j] => i = j

=============================================================================
