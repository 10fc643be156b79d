----------------------------- MODULE RefusedEntry -----------------------------
(***************************************************************************)
(* A member that cannot apply an entry of the log: it tries again, says    *)
(* so, and after some attempts gives its copy of the entry's collection    *)
(* up, or of everything, if the set can spare it; then it copies that      *)
(* anew from another member.                                               *)
(*                                                                         *)
(* A set of one primary and those that follow it. There is one log here,   *)
(* of which a member has a beginning; the primary stays what it is, and    *)
(* nobody rolls back: for that see `Replication` and `Rollback`. How a     *)
(* copy of everything is made is in `InitialSync`; here it is one step.    *)
(* Numbers in round brackets, as (E2), are those of the rules listed in    *)
(* README.md.                                                              *)
(***************************************************************************)
EXTENDS OpTimes, TLC

CONSTANTS
    Follower,           \* two members
    Primary,            \* a third one
    Nil,
    MaxLog,
    Attempts,           \* that fail before a copy is given up: ATTEMPTS_BEFORE_COPY
    MaxCrashes,
    Troubles,           \* what the followers' stores may have against entries: a set of sets of kinds of it
    AtMostOneLasts,     \* whether no two of them have trouble that time does not end
    Unsafe

Variants == {
    "SkipRefused",              \* (E1)
    "RefuseSilently",           \* (E2)
    "ReadyWhileRefusing",       \* (E3)
    "NeverTryAgain",            \* (E4)
    "NeverGiveUpCopy",          \* (E5)
    "NeverAskToSpare",          \* (E6)
    "SpareForLevel",            \* others that have as much are enough (E6)
    "SpareForUnsynced",         \* others that have more, but not on disk, are enough (E6)
    "PassOverNewer",            \* whatever cannot be applied to the copy of a collection is taken for being in it (E7)
    "CopyCollectionForEver"     \* (E8)
}

ASSUME Unsafe \subseteq Variants

Member == Follower \cup {Primary}

\* The collection that an entry is of; Nil: of none alone.
CollectionOf(index) == CASE index % 3 = 1 -> "A" [] index % 3 = 2 -> "B" [] OTHER -> Nil

VARIABLES
    applied,        \* of each member: how far its log goes
    durable,        \* how far that is synced
    documents,      \* the entries that its documents have
    data,           \* "InitialSync", "Recovering", "Ready"
    trouble,        \* what its store has against entries
    attempts,       \* at the next entry, that failed
    obstacle,       \* what it says that keeps it: "Refused", or Nil
    phase,          \* "Reading", "AskingToSpare", "Connecting" (to copy), "Copying" (a collection)
    nextCopy,       \* what is copied next: "CollectionOf", "Everything"
    readAt,         \* where the source's log ended when the reading of the collection began
    heard,          \* of each follower: what it heard last of the other; of the primary it knows what is so
    committed,
    crashes

copying == <<phase, nextCopy, readAt>>
refusal == <<attempts, obstacle>>
vars == <<applied, durable, documents, data, trouble, refusal, copying, heard, committed, crashes>>

Symmetry == Permutations(Follower)

\* Time ends it, or a copy of the collection, or one of everything, or nothing: then nobody but the primary takes such entries.
Lasting == {"Collection", "Everything", "Fault"}

\* What a member says of itself: how far its log goes on disk, nothing while it copies; and whether it can be read from.
Of(m) ==
    [position |-> CASE data[m] = "InitialSync" -> 0
                    [] "SpareForUnsynced" \in Unsafe -> applied[m]
                    [] OTHER -> durable[m],
     isReadable |-> data[m] = "Ready"]

Init ==
    /\ applied = [m \in Member |-> 0]
    /\ durable = [m \in Member |-> 0]
    /\ documents = [m \in Member |-> {}]
    /\ data = [m \in Member |-> "Ready"]
    /\ \E kinds \in [Follower -> Troubles] :
        /\ AtMostOneLasts => Cardinality({m \in Follower : kinds[m] \cap Lasting # {}}) <= 1
        /\ trouble = [m \in Member |-> IF m = Primary THEN {} ELSE kinds[m]]
    /\ attempts = [m \in Member |-> 0]
    /\ obstacle = [m \in Member |-> Nil]
    /\ phase = [m \in Member |-> "Reading"]
    /\ nextCopy = [m \in Member |-> "Everything"]
    /\ readAt = [m \in Member |-> 0]
    /\ heard = [m \in Follower |-> [position |-> 0, isReadable |-> TRUE]]
    /\ committed = 0
    /\ crashes = 0

\* Whether a store that has this trouble refuses the entry.
Refuses(kinds, index) ==
    \/ "Passing" \in kinds
    \/ "Collection" \in kinds /\ CollectionOf(index) = "A"
    \/ "Everything" \in kinds /\ CollectionOf(index) = Nil
    \/ "Fault" \in kinds /\ CollectionOf(index) = "A"

-----------------------------------------------------------------------------
(* The set *)

Write ==
    /\ applied[Primary] < MaxLog
    /\ applied' = [applied EXCEPT ![Primary] = @ + 1]
    /\ documents' = [documents EXCEPT ![Primary] = @ \cup {applied[Primary] + 1}]
    /\ durable' = [durable EXCEPT ![Primary] = IF MaxCrashes = 0 THEN applied[Primary] + 1 ELSE @]
    /\ UNCHANGED <<data, trouble, refusal, copying, heard, committed, crashes>>

Sync(m) ==
    /\ durable[m] < applied[m]
    /\ durable' = [durable EXCEPT ![m] = applied[m]]
    /\ UNCHANGED <<applied, documents, data, trouble, refusal, copying, heard, committed, crashes>>

\* A member without all its data acknowledges nothing.
Commit ==
    /\ \E index \in committed + 1 .. durable[Primary] :
        /\ \E m \in Follower : data[m] # "InitialSync" /\ durable[m] >= index
        /\ committed' = index
    /\ UNCHANGED <<applied, durable, documents, data, trouble, refusal, copying, heard, crashes>>

\* A heartbeat.
Hear(m) ==
    /\ \E o \in Follower \ {m} : heard' = [heard EXCEPT ![m] = Of(o)]
    /\ UNCHANGED <<applied, durable, documents, data, trouble, refusal, copying, committed, crashes>>

\* Memory is there again, or a file.
Mend(m) ==
    /\ "Passing" \in trouble[m]
    /\ trouble' = [trouble EXCEPT ![m] = @ \ {"Passing"}]
    /\ UNCHANGED <<applied, durable, documents, data, refusal, copying, heard, committed, crashes>>

\* The machine of a follower starts again, without what was not synced. What it had against an entry it finds out anew; a copy of a
\* collection becomes one of everything.
Crash(m) ==
    /\ crashes < MaxCrashes
    /\ crashes' = crashes + 1
    /\ applied' = [applied EXCEPT ![m] = durable[m]]
    /\ documents' = [documents EXCEPT ![m] = @ \cap 1..durable[m]]
    /\ data' = [data EXCEPT ![m] = IF @ = "InitialSync" THEN @ ELSE "Ready"]
    /\ attempts' = [attempts EXCEPT ![m] = 0]
    /\ obstacle' = [obstacle EXCEPT ![m] = Nil]
    /\ phase' = [phase EXCEPT ![m] = IF data[m] = "InitialSync" THEN "Connecting" ELSE "Reading"]
    /\ nextCopy' = [nextCopy EXCEPT ![m] = "Everything"]
    /\ readAt' = [readAt EXCEPT ![m] = 0]
    /\ UNCHANGED <<durable, trouble, heard, committed>>

-----------------------------------------------------------------------------
(* Applying *)

HasSource(m) == \E o \in Member \ {m} : data[o] = "Ready" /\ applied[o] > applied[m]

\* The entry that comes next, or that was refused.
NextOf(m) == applied[m] + 1

Store(m, index) ==
    /\ applied' = [applied EXCEPT ![m] = index]
    /\ durable' = [durable EXCEPT ![m] = IF MaxCrashes = 0 THEN index ELSE @]

\* What could not be applied no longer stands in the way.
Apply(m) ==
    /\ phase[m] = "Reading"
    /\ HasSource(m)
    /\ ~ Refuses(trouble[m], NextOf(m))
    /\ Store(m, NextOf(m))
    /\ documents' = [documents EXCEPT ![m] = @ \cup {NextOf(m)}]
    /\ data' = [data EXCEPT ![m] = "Ready"]
    /\ attempts' = [attempts EXCEPT ![m] = 0]
    /\ obstacle' = [obstacle EXCEPT ![m] = Nil]
    /\ UNCHANGED <<trouble, copying, heard, committed, crashes>>

\* One more attempt has failed: nothing is left out (E1), it is said (E2), and the member is RECOVERING (E3). It tries again after a
\* while (E4), or asks whether the set can spare its copy (E5).
Refuse(m) ==
    /\ phase[m] = "Reading"
    /\ HasSource(m)
    /\ Refuses(trouble[m], NextOf(m))
    /\ "NeverTryAgain" \in Unsafe => attempts[m] = 0
    /\ attempts' = [attempts EXCEPT ![m] = IF @ < Attempts THEN @ + 1 ELSE @]
    /\ obstacle' = [obstacle EXCEPT ![m] = IF "RefuseSilently" \in Unsafe THEN @ ELSE "Refused"]
    /\ data' = [data EXCEPT ![m] = IF "ReadyWhileRefusing" \in Unsafe THEN @ ELSE "Recovering"]
    /\ phase' = [phase EXCEPT ![m] =
           IF attempts'[m] = Attempts /\ "NeverGiveUpCopy" \notin Unsafe THEN "AskingToSpare" ELSE @]
    /\ IF "SkipRefused" \in Unsafe THEN Store(m, NextOf(m)) ELSE UNCHANGED <<applied, durable>>
    /\ UNCHANGED <<documents, trouble, nextCopy, readAt, heard, committed, crashes>>

\* Every other voter can be read from, and has more than this member, on disk (E6).
CanSpareMyCopy(m) ==
    \A other \in {heard[m], Of(Primary)} :
        /\ other.isReadable
        /\ IF "SpareForLevel" \in Unsafe THEN other.position >= applied[m] ELSE other.position > applied[m]

Spare(m) ==
    /\ phase[m] = "AskingToSpare"
    /\ IF CanSpareMyCopy(m) \/ "NeverAskToSpare" \in Unsafe
       THEN /\ data' = [data EXCEPT ![m] = "InitialSync"]
            /\ phase' = [phase EXCEPT ![m] = "Connecting"]
            /\ nextCopy' = [nextCopy EXCEPT ![m] = IF CollectionOf(NextOf(m)) = Nil THEN "Everything" ELSE "CollectionOf"]
       ELSE /\ phase' = [phase EXCEPT ![m] = "Reading"]
            /\ UNCHANGED <<data, nextCopy>>
    /\ UNCHANGED <<applied, durable, documents, trouble, refusal, readAt, heard, committed, crashes>>

-----------------------------------------------------------------------------
(* Copying *)

Whole(m) ==
    /\ data' = [data EXCEPT ![m] = "Ready"]
    /\ attempts' = [attempts EXCEPT ![m] = 0]
    /\ obstacle' = [obstacle EXCEPT ![m] = Nil]
    /\ phase' = [phase EXCEPT ![m] = "Reading"]
    /\ readAt' = [readAt EXCEPT ![m] = 0]

\* The source has what the member had (I9).
CopyEverything(m, source) ==
    /\ phase[m] = "Connecting"
    /\ nextCopy[m] = "Everything"
    /\ source # m
    /\ data[source] = "Ready"
    /\ applied[source] >= applied[m]
    /\ applied' = [applied EXCEPT ![m] = applied[source]]
    /\ durable' = [durable EXCEPT ![m] = applied[source]]
    /\ documents' = [documents EXCEPT ![m] = documents[source]]
    /\ trouble' = [trouble EXCEPT ![m] = @ \ {"Collection", "Everything"}]
    /\ Whole(m)
    /\ UNCHANGED <<nextCopy, heard, committed, crashes>>

\* The collection is read from a member that has the entry, so that what this did is in the copy. That is tried once (E8).
BeginCollection(m, source) ==
    /\ phase[m] = "Connecting"
    /\ nextCopy[m] = "CollectionOf"
    /\ source # m
    /\ data[source] = "Ready"
    /\ applied[source] >= NextOf(m)
    /\ nextCopy' = [nextCopy EXCEPT ![m] = IF "CopyCollectionForEver" \in Unsafe THEN @ ELSE "Everything"]
    /\ phase' = [phase EXCEPT ![m] = "Copying"]
    /\ readAt' = [readAt EXCEPT ![m] = applied[source]]
    /\ trouble' = [trouble EXCEPT ![m] = @ \ {"Collection"}]
    /\ UNCHANGED <<applied, durable, documents, data, refusal, heard, committed, crashes>>

\* The log is applied past the entry. An entry of the collection that the copy has, for it was read later, is passed over if it cannot be
\* applied; one that is newer is in no copy, and ends the attempt (E7). The source's log ends now where it did when all had come.
EndCollection(m, source) ==
    /\ phase[m] = "Copying"
    /\ source # m
    /\ data[source] = "Ready"
    /\ applied[source] >= readAt[m]
    /\ LET new == NextOf(m) .. applied[source]
           isOfIt(index) == CollectionOf(index) = CollectionOf(NextOf(m))
           missed == {index \in new : Refuses(trouble[m], index) /\ ~ (isOfIt(index) /\ index <= readAt[m])}
       IN  IF missed = {} \/ ("PassOverNewer" \in Unsafe /\ \A index \in missed : isOfIt(index))
           THEN /\ applied' = [applied EXCEPT ![m] = applied[source]]
                /\ durable' = [durable EXCEPT ![m] = applied[source]]
                /\ documents' = [documents EXCEPT ![m] = @ \cup (new \ missed)]
                /\ Whole(m)
           ELSE /\ phase' = [phase EXCEPT ![m] = "Connecting"]
                /\ readAt' = [readAt EXCEPT ![m] = 0]
                /\ UNCHANGED <<applied, durable, documents, data, refusal>>
    /\ UNCHANGED <<trouble, nextCopy, heard, committed, crashes>>

\* Its source is lost.
LoseCollection(m) ==
    /\ phase[m] = "Copying"
    /\ phase' = [phase EXCEPT ![m] = "Connecting"]
    /\ readAt' = [readAt EXCEPT ![m] = 0]
    /\ UNCHANGED <<applied, durable, documents, data, trouble, refusal, nextCopy, heard, committed, crashes>>

-----------------------------------------------------------------------------

OfMember(m) ==
    \/ Apply(m) \/ Refuse(m) \/ Spare(m)
    \/ \E source \in Member : CopyEverything(m, source) \/ BeginCollection(m, source) \/ EndCollection(m, source)

Next ==
    \/ Write
    \/ Commit
    \/ \E m \in Member : Sync(m)
    \/ \E m \in Follower : OfMember(m) \/ Crash(m) \/ Mend(m) \/ LoseCollection(m) \/ Hear(m)

Spec == Init /\ [][Next]_vars

\* Heartbeats arrive, disks are synced, what passes has passed, and nobody rests for ever.
FairSpec ==
    /\ Spec
    /\ WF_vars(Write)
    /\ \A m \in Member : WF_vars(Sync(m))
    /\ \A m \in Follower : WF_vars(OfMember(m)) /\ WF_vars(Mend(m)) /\ WF_vars(Hear(m))

-----------------------------------------------------------------------------
(* Properties *)

\* No entry is left out. What a member has up to an OpTime is what the others have, or it serves nobody.
DocumentsAreTheLog == \A m \in Member : data[m] = "Ready" => documents[m] = 1..applied[m]

\* Whoever has failed to apply an entry says so.
SaysWhy == \A m \in Member : attempts[m] > 0 => obstacle[m] # Nil

\* And takes no reads and feeds nobody: what is wrong may be its documents.
RefusingServesNobody == \A m \in Member : attempts[m] > 0 => data[m] # "Ready"

\* What is committed is on disk on a majority of those who have their data.
CommittedOnMajority ==
    LET having == {m \in Member : data[m] # "InitialSync" /\ durable[m] >= committed}
    IN  2 * Cardinality(having) > Cardinality(Member)

\* No two members give up their copies.
AtMostOneIsGivenUp == Cardinality({m \in Member : data[m] = "InitialSync"}) <= 1

\* All have all that was written, at last.
Healed == <>[](\A m \in Follower : data[m] = "Ready" /\ applied[m] = MaxLog)
===============================================================================
