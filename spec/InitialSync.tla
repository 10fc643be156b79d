----------------------------- MODULE InitialSync -----------------------------
(***************************************************************************)
(* When a member that copies another one counts as whole: it clones the    *)
(* source's documents, each at a moment of its own, while it reads the     *)
(* source's log, and applies that until the copy is whole; or it copies    *)
(* the source's files as of a checkpoint. It may have had data before,     *)
(* which counted for what is committed, and given them up.                 *)
(*                                                                         *)
(* The set has two members beside it, with elections, commits, rollbacks   *)
(* and crashes as single steps: how they are done is in `Replication` and  *)
(* `Rollback`. Terms are adopted by all at once. Numbers in round          *)
(* brackets, as (I2), are those of the rules listed in README.md.          *)
(*                                                                         *)
(* There are two documents; the entry of an odd index sets one of them,    *)
(* the entry of an even index the other. A document is known by the        *)
(* OpTime of the entry that set it last.                                   *)
(***************************************************************************)
EXTENDS OpTimes, TLC

CONSTANTS
    Other,              \* the two other members
    Nil,
    MaxTerm,
    MaxLog,
    MaxCrashes,         \* of the others' machines: what was not synced is lost
    FourthVotes,        \* whether a member that is not shown has a vote, for whoever has all that is committed
    HasData,            \* whether the member begins with data, which it may give up once, or without any
    ByFile,             \* whether it copies files, or documents
    Truncates,          \* whether the others' logs lose their beginnings
    Fails,              \* whether attempts end, and streams are lost, at any moment; or only where going on would be wrong
    Unsafe

Variants == {
    "TrustRolledBackSource",    \* (I1)
    "BeginLogLate",             \* the log is read from where the documents have come, not from before (I2)
    "CountAsWholeTooEarly",     \* (I3)
    "LeaveGapInCopiedLog",      \* (I4)
    "KeepCopyOfAnotherSource",  \* what one source sent is kept for the next (I5)
    "LogIncrements",            \* an entry says what to do to a document, not what it is afterwards (I6)
    "ReadyWhileCopying",        \* (I7)
    "AcknowledgeWhileCopying",  \* (I7)
    "VoteWhileCopying",         \* (I7)
    "ForgetNotWhole",           \* a start takes what it finds for whole (I8)
    "AskForCommitPoint",        \* a source need have but what the member knows to be committed (I9)
    "ForgetWhatItHad",          \* a start in the middle of a copy does not know how far the own log went (I9)
    "ReadFilesOneByOne",        \* files are copied as they are when their turn comes (I10)
    "TakeAnyCheckpoint"         \* what was asked before the checkpoint is not asked of it (I11)
}

ASSUME Unsafe \subseteq Variants

VARIABLES
    \* The set.
    term,
    leader,             \* of this term, or Nil
    committed,          \* so much of the log as is committed
    log,                \* of each of the others
    durable,            \* how many of its entries are synced
    oldest,             \* the index of the first that is still there
    rollbackId,
    crashes,
    \* The member's disk.
    isWhole,
    mine,               \* its log, written out from the first entry on though a copied one begins later
    document,           \* the OpTime that each is as of; Nil: it has not come
    additions,          \* what was done to each since; only if entries are increments
    required,           \* the OpTime that a source's log must have reached: the end of the own one that was given up
    \* Its memory.
    data,               \* "InitialSync", "Ready"
    task,               \* of the copy's main lane: "None", "AskNewest", "BeginCheckpoint", "Read", "Apply", "EndClone", "Arrive"
    source,             \* or Nil
    copiedId,           \* the source's rollback id when the attempt began
    until,              \* the OpTime at which the copy is whole
    buffer,             \* entries that follow `mine`, not yet applied; of a copy by file the checkpoint's log
    isOpen,             \* whether the stream of the source's log goes on behind the buffer
    gaps,               \* indexes of entries that were left out
    gaveUp              \* whether the data were given up once

set == <<term, leader, committed, log, durable, oldest, rollbackId, crashes>>
disk == <<isWhole, mine, document, additions>>
copy == <<source, copiedId, until, buffer, isOpen, gaps>>
vars == <<set, disk, required, data, task, copy, gaveUp>>

Symmetry == Permutations(Other)

Documents == {0, 1}
DocumentOf(index) == index % 2

\* The last entry of a log that set the document; zero: none did.
AsOf(entries, which) ==
    LET those == {index \in 1..Len(entries) : DocumentOf(index) = which}
    IN  IF those = {} THEN ZeroOpTime
        ELSE LET last == CHOOSE index \in those : \A other \in those : other <= index IN OpTime(entries[last], last)

AllAsOf(entries) == [which \in Documents |-> AsOf(entries, which)]
NothingCame == [which \in Documents |-> Nil]
None == [which \in Documents |-> 0]

Init ==
    /\ term = 1
    /\ leader \in Other
    /\ committed = <<1>>
    /\ log = [o \in Other |-> <<1>>]
    /\ durable = [o \in Other |-> 1]
    /\ oldest = [o \in Other |-> 1]
    /\ rollbackId = [o \in Other |-> 1]
    /\ crashes = 0
    /\ isWhole = HasData
    /\ mine = IF HasData THEN <<1>> ELSE <<>>
    /\ document = IF HasData THEN AllAsOf(<<1>>) ELSE NothingCame
    /\ additions = None
    /\ required = ZeroOpTime
    /\ data = IF HasData THEN "Ready" ELSE "InitialSync"
    /\ task = "None"
    /\ source = Nil
    /\ copiedId = 0
    /\ until = ZeroOpTime
    /\ buffer = <<>>
    /\ isOpen = FALSE
    /\ gaps = {}
    /\ gaveUp = ~ HasData

-----------------------------------------------------------------------------
(* What the member is to the set *)

\* Who has not all its data acknowledges nothing, for it may throw away what it has (I7).
Acknowledges(opTime) ==
    /\ data = "Ready" \/ "AcknowledgeWhileCopying" \in Unsafe
    /\ mine # <<>>
    /\ Contains(mine, opTime)

\* And has nothing to judge a candidate by (I7).
Votes(candidate) ==
    /\ data = "Ready" \/ "VoteWhileCopying" \in Unsafe
    /\ LastOpTime(mine) <= LastOpTime(log[candidate])

-----------------------------------------------------------------------------
(* The others *)

StoreOf(o, entries, synced) ==
    /\ log' = [log EXCEPT ![o] = entries]
    /\ durable' = [durable EXCEPT ![o] = IF MaxCrashes = 0 THEN Len(entries) ELSE synced]

\* What ends a stream of this member's log.
Breaks(o) == isOpen' = (isOpen /\ source # o)

Elect(c) ==
    /\ term < MaxTerm
    /\ Len(log[c]) < MaxLog
    /\ \/ \E voter \in Other \ {c} : LastOpTime(log[voter]) <= LastOpTime(log[c])
       \/ Votes(c)
       \/ FourthVotes /\ IsPrefix(committed, log[c])
    /\ term' = term + 1
    /\ leader' = c
    /\ StoreOf(c, Append(log[c], term + 1), durable[c])
    /\ UNCHANGED <<committed, oldest, rollbackId, crashes, disk, required, data, task, copy, gaveUp>>

Write ==
    /\ leader # Nil
    /\ Len(log[leader]) < MaxLog
    /\ StoreOf(leader, Append(log[leader], term), durable[leader])
    /\ UNCHANGED <<term, leader, committed, oldest, rollbackId, crashes, disk, required, data, task, copy, gaveUp>>

Commit ==
    /\ leader # Nil
    /\ \E index \in Len(committed) + 1 .. durable[leader] :
        /\ log[leader][index] = term
        /\ \/ \E o \in Other \ {leader} : durable[o] >= index /\ Contains(log[o], OpTime(term, index))
           \/ Acknowledges(OpTime(term, index))
        /\ committed' = FirstOf(log[leader], index)
    /\ UNCHANGED <<term, leader, log, durable, oldest, rollbackId, crashes, disk, required, data, task, copy, gaveUp>>

Pull(o) ==
    /\ leader \notin {Nil, o}
    /\ IsPrefix(log[o], log[leader])
    /\ Len(log[o]) < Len(log[leader])
    /\ StoreOf(o, FirstOf(log[leader], Len(log[o]) + 1), durable[o])
    /\ UNCHANGED <<term, leader, committed, oldest, rollbackId, crashes, disk, required, data, task, copy, gaveUp>>

\* Rules 7 and 7a; R8.
RollBack(o) ==
    /\ leader \notin {Nil, o}
    /\ ~ IsPrefix(log[o], log[leader])
    /\ LastOpTime(log[o]) < LastOpTime(log[leader])
    /\ LastTerm(log[leader]) = term
    /\ LET common == CommonPoint(log[o], log[leader])
       IN  /\ common >= oldest[o]
           /\ StoreOf(o, FirstOf(log[o], common), common)
    /\ rollbackId' = [rollbackId EXCEPT ![o] = @ + 1]
    /\ Breaks(o)
    /\ UNCHANGED <<term, leader, committed, oldest, crashes, disk, required, data, task, source, copiedId, until, buffer, gaps, gaveUp>>

Sync(o) ==
    /\ durable[o] < Len(log[o])
    /\ durable' = [durable EXCEPT ![o] = Len(log[o])]
    /\ UNCHANGED <<term, leader, committed, log, oldest, rollbackId, crashes, disk, required, data, task, copy, gaveUp>>

\* The machine starts again without what was not synced (R9).
Crash(o) ==
    /\ crashes < MaxCrashes
    /\ durable[o] < Len(log[o])
    /\ oldest[o] <= durable[o]
    /\ crashes' = crashes + 1
    /\ leader' = IF leader = o THEN Nil ELSE leader
    /\ log' = [log EXCEPT ![o] = FirstOf(@, durable[o])]
    /\ rollbackId' = [rollbackId EXCEPT ![o] = @ + 1]
    /\ Breaks(o)
    /\ UNCHANGED <<term, committed, durable, oldest, disk, required, data, task, source, copiedId, until, buffer, gaps, gaveUp>>

\* The beginning of a log goes; a stream with it that had not come so far.
Truncate(o) ==
    /\ Truncates
    /\ \E index \in oldest[o] + 1 .. Len(log[o]) :
        /\ oldest' = [oldest EXCEPT ![o] = index]
        /\ isOpen' = (isOpen /\ (source = o => index <= Len(mine) + Len(buffer) + 1))
    /\ UNCHANGED <<term, leader, committed, log, durable, rollbackId, crashes, disk, required, data, task, source, copiedId, until, buffer,
                   gaps, gaveUp>>

-----------------------------------------------------------------------------
(* The member with its data *)

\* A copied document is set to what it was after the entry, older than it is (I6).
Apply(index, entry) ==
    LET which == DocumentOf(index)
    IN  IF "LogIncrements" \in Unsafe
        THEN /\ document' = [document EXCEPT ![which] = Higher(@, OpTime(entry, index))]
             /\ additions' = [additions EXCEPT ![which] = @ + (IF document[which] >= OpTime(entry, index) THEN 1 ELSE 0)]
        ELSE /\ document' = [document EXCEPT ![which] = OpTime(entry, index)]
             /\ UNCHANGED additions

\* It follows another's log. Its own rollbacks are another module's.
Follow(o) ==
    /\ data = "Ready"
    /\ task = "None"
    /\ oldest[o] <= Len(mine)
    /\ IsPrefix(mine, log[o])
    /\ Len(mine) < Len(log[o])
    /\ mine' = Append(mine, log[o][Len(mine) + 1])
    /\ Apply(Len(mine) + 1, log[o][Len(mine) + 1])
    /\ UNCHANGED <<set, isWhole, required, data, task, copy, gaveUp>>

\* What it knows to be committed, at the most and at the least.
Known == {LastOpTime(FirstOf(mine, count)) : count \in 0..CommonPoint(mine, committed)}

\* For an entry that cannot be applied, or a rollback that cannot be done. It is noted that the data are not whole, and how far its log
\* went: its acknowledgements may have counted for that (I8, I9).
GiveUpData ==
    /\ data = "Ready"
    /\ task = "None"
    /\ ~ gaveUp
    /\ gaveUp' = TRUE
    /\ isWhole' = FALSE
    /\ data' = "InitialSync"
    /\ IF "AskForCommitPoint" \in Unsafe THEN required' \in Known ELSE required' = LastOpTime(mine)
    /\ UNCHANGED <<set, mine, document, additions, task, copy>>

-----------------------------------------------------------------------------
(* The copy *)

Forget ==
    /\ source' = Nil
    /\ copiedId' = 0
    /\ until' = ZeroOpTime
    /\ buffer' = <<>>
    /\ isOpen' = FALSE
    /\ gaps' = {}

\* The count of rollbacks is asked for before all else (I1), and nobody is copied that is behind (I9).
BeginCopy(o) ==
    /\ data = "InitialSync" \/ ("ReadyWhileCopying" \in Unsafe /\ ~ isWhole)
    /\ task = "None"
    /\ LastOpTime(log[o]) >= required
    /\ source' = o
    /\ copiedId' = rollbackId[o]
    /\ task' = "AskNewest"
    /\ data' = IF "ReadyWhileCopying" \in Unsafe THEN "Ready" ELSE data
    /\ UNCHANGED <<set, disk, required, until, buffer, isOpen, gaps, gaveUp>>

\* The log begins with what is the source's newest entry before the first document is read (I2). The store is emptied.
BeginClone ==
    /\ task = "AskNewest"
    /\ ~ ByFile
    /\ LastOpTime(log[source]) >= required
    /\ mine' = log[source]
    /\ document' = NothingCame
    /\ additions' = None
    /\ task' = "Read"
    /\ UNCHANGED <<set, isWhole, required, data, copy, gaveUp>>

\* One document comes, as it is there now.
Read(which) ==
    /\ task = "Read"
    /\ document[which] = Nil
    /\ document' = [document EXCEPT ![which] = AsOf(log[source], which)]
    /\ UNCHANGED <<set, isWhole, mine, additions, required, data, task, copy, gaveUp>>

\* The stream begins with the last entry that is here, or not at all (I4).
CanOpen ==
    /\ oldest[source] <= Len(mine) + Len(buffer)
    /\ Contains(log[source], LastOpTime(mine \o buffer))

OpenLog ==
    /\ task \in {"Read", "Apply"}
    /\ ~ isOpen
    /\ LET fetched == Len(mine) + Len(buffer)
       IN  IF CanOpen
           THEN UNCHANGED <<buffer, gaps>>
           ELSE /\ "LeaveGapInCopiedLog" \in Unsafe
                /\ fetched < oldest[source]
                /\ buffer' = buffer \o SubSeq(log[source], fetched + 1, oldest[source])
                /\ gaps' = gaps \cup (fetched + 1 .. oldest[source])
    /\ isOpen' = TRUE
    /\ UNCHANGED <<set, disk, required, data, task, source, copiedId, until, gaveUp>>

ReadLog ==
    /\ isOpen
    /\ Len(mine) + Len(buffer) < Len(log[source])
    /\ buffer' = Append(buffer, log[source][Len(mine) + Len(buffer) + 1])
    /\ UNCHANGED <<set, disk, required, data, task, source, copiedId, until, isOpen, gaps, gaveUp>>

LoseStream ==
    /\ Fails
    /\ isOpen
    /\ isOpen' = FALSE
    /\ UNCHANGED <<set, disk, required, data, task, source, copiedId, until, buffer, gaps, gaveUp>>

\* All documents have come: the copy is whole once it has what the source has now (I3).
AskNewest ==
    /\ task = "Read"
    /\ \A which \in Documents : document[which] # Nil
    /\ until' = IF "CountAsWholeTooEarly" \in Unsafe THEN LastOpTime(mine) ELSE LastOpTime(log[source])
    /\ IF "BeginLogLate" \in Unsafe THEN mine' = log[source] /\ buffer' = <<>> ELSE UNCHANGED <<mine, buffer>>
    /\ isOpen' = (isOpen /\ "BeginLogLate" \notin Unsafe)
    /\ task' = "Apply"
    /\ UNCHANGED <<set, isWhole, document, additions, required, data, source, copiedId, gaps, gaveUp>>

ApplyEntry ==
    /\ task = "Apply"
    /\ LastOpTime(mine) < until
    /\ buffer # <<>>
    /\ mine' = Append(mine, Head(buffer))
    /\ buffer' = Tail(buffer)
    /\ IF Len(mine) + 1 \in gaps THEN UNCHANGED <<document, additions>> ELSE Apply(Len(mine) + 1, Head(buffer))
    /\ UNCHANGED <<set, isWhole, required, data, task, source, copiedId, until, isOpen, gaps, gaveUp>>

\* What the source had last is here, and it has taken nothing back since the beginning (I1).
AskRollbackId ==
    /\ task = "Apply"
    /\ LastOpTime(mine) >= until
    /\ Contains(mine, until)
    /\ rollbackId[source] = copiedId \/ "TrustRolledBackSource" \in Unsafe
    /\ task' = "EndClone"
    /\ UNCHANGED <<set, disk, required, data, copy, gaveUp>>

\* The data are whole.
EndClone ==
    /\ task = "EndClone"
    /\ isWhole' = TRUE
    /\ data' = "Ready"
    /\ task' = "None"
    /\ required' = ZeroOpTime
    /\ Forget
    /\ UNCHANGED <<set, mine, document, additions, gaveUp>>

AskBytes ==
    /\ task = "AskNewest"
    /\ ByFile
    /\ LastOpTime(log[source]) >= required
    /\ task' = "BeginCheckpoint"
    /\ UNCHANGED <<set, disk, required, data, copy, gaveUp>>

\* By file: the source as it is at one moment (I10), which is looked at as it is then (I11).
BeginCheckpoint ==
    /\ task = "BeginCheckpoint"
    /\ LastOpTime(log[source]) >= required \/ "TakeAnyCheckpoint" \in Unsafe
    /\ buffer' = log[source]
    /\ task' = "Arrive"
    /\ IF "ReadFilesOneByOne" \in Unsafe
       THEN document' = NothingCame
       ELSE UNCHANGED document
    /\ UNCHANGED <<set, isWhole, mine, additions, required, data, source, copiedId, until, isOpen, gaps, gaveUp>>

ReadFile(which) ==
    /\ "ReadFilesOneByOne" \in Unsafe
    /\ task = "Arrive"
    /\ document[which] = Nil
    /\ document' = [document EXCEPT ![which] = AsOf(log[source], which)]
    /\ UNCHANGED <<set, isWhole, mine, additions, required, data, task, copy, gaveUp>>

\* All files are here and synced, and the process starts with them, its vote and its configuration.
Arrive ==
    /\ task = "Arrive"
    /\ IF "ReadFilesOneByOne" \in Unsafe
       THEN (\A which \in Documents : document[which] # Nil) /\ UNCHANGED document
       ELSE document' = AllAsOf(buffer)
    /\ mine' = buffer
    /\ additions' = None
    /\ isWhole' = TRUE
    /\ data' = "Ready"
    /\ task' = "None"
    /\ required' = ZeroOpTime
    /\ Forget
    /\ UNCHANGED <<set, gaveUp>>

\* The source's log no longer has what comes next, it has rolled back, it is behind: going on would be wrong.
IsStuck ==
    \/ task \in {"AskNewest", "BeginCheckpoint"} /\ LastOpTime(log[source]) < required
    \/ task \in {"Read", "Apply"} /\ rollbackId[source] # copiedId
    \/ task \in {"Read", "Apply"} /\ ~ isOpen /\ ~ CanOpen

\* Another attempt, perhaps with another source, takes nothing over of this one (I5). What is left here nobody looks at.
EndAttempt ==
    /\ task \notin {"None", "EndClone"}
    /\ Fails \/ IsStuck
    /\ task' = "None"
    /\ mine' = <<>>
    /\ document' = NothingCame
    /\ additions' = None
    /\ Forget
    /\ UNCHANGED <<set, isWhole, required, data, gaveUp>>

GoOnWithAnotherSource ==
    /\ "KeepCopyOfAnotherSource" \in Unsafe
    /\ task \in {"Read", "Apply"}
    /\ source' \in Other \ {source}
    /\ isOpen' = FALSE
    /\ copiedId' = rollbackId[source']
    /\ UNCHANGED <<set, disk, required, data, task, until, buffer, gaps, gaveUp>>

\* The process ends and begins again, in the middle of a copy. It finds that its data are not whole, and how far its log went (I8, I9).
Restart ==
    /\ Fails
    /\ ~ isWhole
    /\ task \in {"Read", "Apply"}
    /\ task' = "None"
    /\ data' = IF "ForgetNotWhole" \in Unsafe THEN "Ready" ELSE "InitialSync"
    /\ required' = IF "ForgetWhatItHad" \in Unsafe THEN ZeroOpTime ELSE required
    /\ Forget
    /\ UNCHANGED <<set, disk, gaveUp>>

-----------------------------------------------------------------------------

OfOthers ==
    \/ Write
    \/ Commit
    \/ \E o \in Other : Elect(o) \/ Pull(o) \/ RollBack(o) \/ Sync(o) \/ Crash(o) \/ Truncate(o)

OfMember ==
    \/ GiveUpData
    \/ BeginClone \/ OpenLog \/ ReadLog \/ LoseStream \/ AskNewest \/ ApplyEntry \/ AskRollbackId \/ EndClone
    \/ AskBytes \/ BeginCheckpoint \/ Arrive
    \/ EndAttempt \/ GoOnWithAnotherSource \/ Restart
    \/ \E o \in Other : Follow(o) \/ BeginCopy(o)
    \/ \E which \in Documents : Read(which) \/ ReadFile(which)

Next == OfOthers \/ OfMember

Spec == Init /\ [][Next]_vars

\* Whatever the others do, the member goes on.
FairSpec == Spec /\ WF_vars(OfMember)

-----------------------------------------------------------------------------
(* Properties *)

\* Whoever may be read, fetched from and voted by has the documents that its log says, neither older nor newer.
DocumentsAreTheLog == data = "Ready" => document = AllAsOf(mine) /\ additions = None

\* Every primary has what is committed, whoever counted for that and gave up its data since.
LeaderCompleteness == leader # Nil => IsPrefix(committed, log[leader])

\* A member that copies is whole at last.
CopyEnds == data = "InitialSync" ~> data = "Ready"
=============================================================================
