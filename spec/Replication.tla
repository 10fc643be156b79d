----------------------------- MODULE Replication -----------------------------
(***************************************************************************)
(* Replication by pull: elections, the oplog's way from member to member,  *)
(* positions' way back to the primary, and the commit point.               *)
(*                                                                         *)
(* The protocol is that of "Fault-Tolerant Replication with Pull-Based     *)
(* Consensus in MongoDB" (Zhou and Mu, NSDI 2021), with the heartbeat rule *)
(* of its appendix A replaced by a sound one. Numbers in round brackets,   *)
(* as (10), are those of the rules listed in README.md.                    *)
(*                                                                         *)
(* A step reads the other member's present state: a message is sent and    *)
(* arrives at once, or never. README.md says what that leaves out.         *)
(*                                                                         *)
(* `Unsafe` names rules to break. A configuration that breaks one must     *)
(* find the harm, or the property that should see it is worth nothing.     *)
(***************************************************************************)
EXTENDS OpTimes, TLC

CONSTANTS
    Member,             \* the voting members, all of which hold data
    Nil,
    MaxTerm,            \* bounds of what is explored
    MaxLog,
    Crashes,            \* whether members crash and lose what was not synced
    VotesOneByOne,      \* whether voters answer one by one, or an election is one step
    TracksSyncSource,   \* whether a member holds on to one sync source, or pulls from any member
    Unsafe

Variants == {
    "AcknowledgeAcrossTerms",       \* a position counts whatever its sender's term (2)
    "CommitOlderTerms",             \* entries of earlier terms are counted for commitment (1)
    "HeartbeatOfAppendixA",         \* the commit point of a heartbeat is taken without its term (10)
    "RollBackWhilePrimary",         \* and go over to the source's entries at once (7)
    "CatchUpPullsHigherTerm",       \* (4)
    "CatchUpAfterFirstWrite",       \* the fetcher is not drained before the first own entry (4)
    "ForgetVote",                   \* a vote is not persisted before the reply (12)
    "AcknowledgeUnsynced",          \* a position is reported before it is durable (19)
    "UnclampedCommitPoint",         \* the sync source's commit point is taken as it is (11)
    "KeepSyncSource"                \* a sync source is never checked again (9)
}

ASSUME Unsafe \subseteq Variants

VARIABLES
    state,          \* "Primary", "Secondary", or "Candidate"
    currentTerm,    \* persisted before any reply
    votedFor,       \* in currentTerm, or Nil; persisted before the reply
    votes,          \* of a candidate: who granted it so far, itself once its vote is persisted
    forgets,        \* of a candidate whose own vote is not persisted yet: the term and vote that are; else Nil
    log,
    durable,        \* how many of the log's entries are synced
    commitPoint,    \* the highest OpTime a member knows to be committed; volatile
    syncSource,     \* or Nil; volatile
    \* Not of any member: for each term the log up to what its primary committed.
    committed,
    \* lastPosition[i][j]: the highest OpTime that i knows to be durable on j, volatile.
    \* A member's own position is read off its log.
    lastPosition

vars == <<state, currentTerm, votedFor, votes, forgets, log, durable, commitPoint, syncSource, committed,
          lastPosition>>

Symmetry == Permutations(Member)

(***************************************************************************)
(* Two states that differ only in positions of terms that have passed for  *)
(* the member that holds them are one: a primary counts only positions of  *)
(* its own term or a later one, and terms travel with positions. Wrong for *)
(* the variants CommitOlderTerms and AcknowledgeAcrossTerms.               *)
(***************************************************************************)
View == <<state, currentTerm, votedFor, votes, forgets, log, durable, commitPoint, syncSource, committed,
          [i \in Member |-> [j \in Member |->
              IF TermOf(lastPosition[i][j]) < currentTerm[i] THEN ZeroOpTime ELSE lastPosition[i][j]]]>>

Last(i) == LastOpTime(log[i])

\* What a member may report of itself: nothing that it could lose (19).
OwnPosition(i) ==
    IF "AcknowledgeUnsynced" \in Unsafe THEN Last(i) ELSE LastOpTime(FirstOf(log[i], durable[i]))

Position(i, j) == IF i = j THEN OwnPosition(i) ELSE lastPosition[i][j]

Terms == 1..MaxTerm
Quorums == Majorities(Member)
LeastQuorums == LeastMajorities(Member)

Init ==
    /\ state = [i \in Member |-> "Secondary"]
    /\ currentTerm = [i \in Member |-> 0]
    /\ votedFor = [i \in Member |-> Nil]
    /\ votes = [i \in Member |-> {}]
    /\ forgets = [i \in Member |-> Nil]
    /\ log = [i \in Member |-> <<>>]
    /\ durable = [i \in Member |-> 0]
    /\ commitPoint = [i \in Member |-> ZeroOpTime]
    /\ syncSource = [i \in Member |-> Nil]
    /\ committed = [term \in Terms |-> <<>>]
    /\ lastPosition = [i \in Member |-> [j \in Member |-> ZeroOpTime]]

-----------------------------------------------------------------------------
(* Parts of steps *)

\* Whoever sees a higher term takes it over, and is a secondary in it (2).
AdoptTerm(i, term) ==
    IF term > currentTerm[i]
    THEN /\ currentTerm' = [currentTerm EXCEPT ![i] = term]
         /\ votedFor' = [votedFor EXCEPT ![i] = Nil]
         /\ votes' = [votes EXCEPT ![i] = {}]
         /\ forgets' = [forgets EXCEPT ![i] = Nil]
         /\ state' = [state EXCEPT ![i] = "Secondary"]
    ELSE UNCHANGED <<currentTerm, votedFor, votes, forgets, state>>

\* Replaces a log. Where members do not crash, every entry is durable at once.
Store(i, entries) ==
    /\ log' = [log EXCEPT ![i] = entries]
    /\ durable' = [durable EXCEPT ![i] =
           IF Crashes THEN Lower(@, Len(entries)) ELSE Len(entries)]

MayPullFrom(i, j) ==
    i # j /\ (TracksSyncSource => syncSource[i] = j)

\* The source is strictly ahead, by OpTime (9).
Ahead(j, i) == Last(i) < Last(j)

\* My last entry is in the source's log, by term and timestamp (6).
Continues(i, j) == Contains(log[j], Last(i))

NextEntryOf(j, i) == log[j][Len(log[i]) + 1]

HasOwnEntry(i) == LastTerm(log[i]) = currentTerm[i]

-----------------------------------------------------------------------------
(* Elections *)

\* A voter refuses an older OpTime (14), and votes once in a term: for the same one as often as that asks.
Grants(j, i, term) ==
    /\ \/ currentTerm[j] < term
       \/ currentTerm[j] = term /\ votedFor[j] \in {Nil, i}
    /\ Last(i) >= Last(j)

\* An election in one step: the candidate, and voters that make a majority with it.
BecomePrimary(i, quorum) ==
    LET term == currentTerm[i] + 1
    IN  /\ ~ VotesOneByOne
        /\ state[i] = "Secondary"
        /\ term <= MaxTerm
        /\ i \in quorum
        /\ \A j \in quorum : Grants(j, i, term)
        /\ state' = [j \in Member |->
               IF j = i THEN "Primary" ELSE IF j \in quorum THEN "Secondary" ELSE state[j]]
        /\ currentTerm' = [j \in Member |-> IF j \in quorum THEN term ELSE currentTerm[j]]
        /\ votedFor' = [j \in Member |-> IF j \in quorum THEN i ELSE votedFor[j]]
        /\ syncSource' = [syncSource EXCEPT ![i] = Nil]
        /\ UNCHANGED <<votes, forgets, log, durable, commitPoint, committed, lastPosition>>

\* The same in as many steps as it has messages. Others are asked while the candidate's own vote is being persisted.
\* It does not win before that: it could lead twice in one term, in two processes, and give two entries one OpTime.
\* (Two entries of one term and index are one here, so nothing here shows that; the simulator's checker of votes does.)
RequestVotes(i) ==
    /\ VotesOneByOne
    /\ state[i] # "Primary"
    /\ forgets[i] = Nil
    /\ currentTerm[i] < MaxTerm
    /\ state' = [state EXCEPT ![i] = "Candidate"]
    /\ currentTerm' = [currentTerm EXCEPT ![i] = @ + 1]
    /\ votedFor' = [votedFor EXCEPT ![i] = i]
    /\ IF Crashes
       THEN /\ votes' = [votes EXCEPT ![i] = {}]
            /\ forgets' = [forgets EXCEPT ![i] = <<currentTerm[i], votedFor[i]>>]
       ELSE /\ votes' = [votes EXCEPT ![i] = {i}]
            /\ UNCHANGED forgets
    /\ UNCHANGED <<log, durable, commitPoint, syncSource, committed, lastPosition>>

PersistOwnVote(i) ==
    /\ forgets[i] # Nil
    /\ forgets' = [forgets EXCEPT ![i] = Nil]
    /\ votes' = IF state[i] = "Candidate" THEN [votes EXCEPT ![i] = @ \cup {i}] ELSE votes
    /\ UNCHANGED <<state, currentTerm, votedFor, log, durable, commitPoint, syncSource, committed, lastPosition>>

GrantVote(j, i) ==
    /\ state[i] = "Candidate"
    /\ j # i
    /\ Grants(j, i, currentTerm[i])
    /\ currentTerm' = [currentTerm EXCEPT ![j] = currentTerm[i]]
    /\ votedFor' = [votedFor EXCEPT ![j] = i]
    /\ votes' = [votes EXCEPT ![i] = @ \cup {j}, ![j] = {}]
    /\ forgets' = [forgets EXCEPT ![j] = Nil]
    /\ state' = [state EXCEPT ![j] = "Secondary"]
    /\ UNCHANGED <<log, durable, commitPoint, syncSource, committed, lastPosition>>

WinElection(i) ==
    /\ state[i] = "Candidate"
    /\ votes[i] \in Quorums
    /\ i \in votes[i]
    /\ state' = [state EXCEPT ![i] = "Primary"]
    /\ votes' = [votes EXCEPT ![i] = {}]
    /\ UNCHANGED <<currentTerm, votedFor, forgets, log, durable, commitPoint, syncSource, committed, lastPosition>>

Stepdown(i) ==
    /\ state[i] = "Primary"
    /\ state' = [state EXCEPT ![i] = "Secondary"]
    /\ UNCHANGED <<currentTerm, votedFor, votes, forgets, log, durable, commitPoint,
                   syncSource, committed, lastPosition>>

\* Heartbeats carry terms.
LearnTerm(i, j) ==
    /\ currentTerm[i] < currentTerm[j]
    /\ AdoptTerm(i, currentTerm[j])
    /\ UNCHANGED <<log, durable, commitPoint, syncSource, committed, lastPosition>>

-----------------------------------------------------------------------------
(* The log *)

ClientWrite(i) ==
    /\ state[i] = "Primary"
    /\ Len(log[i]) < MaxLog
    /\ Store(i, Append(log[i], currentTerm[i]))
    /\ UNCHANGED <<state, currentTerm, votedFor, votes, forgets, commitPoint, syncSource, committed, lastPosition>>

\* A secondary pulls, whatever the source's term: it may have voted in a higher one since (3). If the source's
\* term is higher, it is taken over before the entry.
PullEntries(i, j) ==
    /\ state[i] # "Primary"
    /\ MayPullFrom(i, j)
    /\ Ahead(j, i)
    /\ Continues(i, j)
    /\ AdoptTerm(i, currentTerm[j])
    /\ Store(i, Append(log[i], NextEntryOf(j, i)))
    /\ UNCHANGED <<commitPoint, syncSource, committed, lastPosition>>

\* Whether j's log ends in the term that is i's and j's.
EndsInPresentTerm(i, j) ==
    /\ log[j][Len(log[j])] >= currentTerm[i]
    /\ log[j][Len(log[j])] >= currentTerm[j]

\* A mismatch is rolled back to the common point only if the source's last OpTime is greater, and never while
\* primary (7); and only for a log that ends in the present term, which therefore has all that is committed (7a).
\* A candidate gives up: its votes were for the log that it showed (14).
RollbackOplog(i, j) ==
    /\ \/ state[i] # "Primary"
       \/ "RollBackWhilePrimary" \in Unsafe
    /\ MayPullFrom(i, j)
    /\ Ahead(j, i)
    /\ ~ Continues(i, j)
    /\ \/ EndsInPresentTerm(i, j)
       \/ "RollBackWhilePrimary" \in Unsafe
    /\ IF "RollBackWhilePrimary" \in Unsafe
       THEN UNCHANGED <<currentTerm, votedFor, votes, forgets, state>>
       ELSE IF state[i] = "Candidate"
       THEN /\ state' = [state EXCEPT ![i] = "Secondary"]
            /\ votes' = [votes EXCEPT ![i] = {}]
            /\ UNCHANGED <<currentTerm, votedFor, forgets>>
       ELSE AdoptTerm(i, currentTerm[j])
    /\ LET common == CommonPoint(log[i], log[j])
       IN  Store(i, IF "RollBackWhilePrimary" \in Unsafe
                    THEN FirstOf(log[j], Lower(common + 1, Len(log[j]))) ELSE FirstOf(log[i], common))
    /\ UNCHANGED <<commitPoint, syncSource, committed, lastPosition>>

\* A new primary fetches until its first entry of the new term, and only entries of earlier terms (4). A source of a
\* higher term would depose it (LearnTerm).
CatchUp(i, j) ==
    /\ state[i] = "Primary"
    /\ MayPullFrom(i, j)
    /\ \/ /\ Ahead(j, i)
          /\ ~ HasOwnEntry(i)
          /\ Continues(i, j)
          /\ \/ currentTerm[j] <= currentTerm[i] /\ NextEntryOf(j, i) < currentTerm[i]
             \/ "CatchUpPullsHigherTerm" \in Unsafe
          /\ Store(i, Append(log[i], NextEntryOf(j, i)))
       \* What was fetched before the first own entry, and is appended behind it.
       \/ /\ "CatchUpAfterFirstWrite" \in Unsafe
          /\ HasOwnEntry(i)
          /\ Len(log[i]) < MaxLog
          /\ \E fetched \in 1..Len(log[j]) :
                /\ IsPrefix(FirstOf(log[j], fetched - 1), log[i])
                /\ log[j][fetched] < currentTerm[i]
                /\ fetched <= Len(log[i]) /\ log[i][fetched] = currentTerm[i]
                /\ Store(i, Append(log[i], log[j][fetched]))
    /\ UNCHANGED <<state, currentTerm, votedFor, votes, forgets, commitPoint, syncSource, committed, lastPosition>>

-----------------------------------------------------------------------------
(* Positions and the commit point *)

\* A member sends all it knows to its sync source, with its term, which the receiver takes over before it merges the
\* positions; so does every member on the way (2).
UpdatePosition(i, j) ==
    LET merged == [k \in Member |->
            IF k = j THEN lastPosition[j][k] ELSE Higher(lastPosition[j][k], Position(i, k))]
    IN  /\ state[i] # "Primary"
        /\ MayPullFrom(i, j)
        /\ \/ merged # lastPosition[j]
           \/ currentTerm[i] > currentTerm[j]
        /\ lastPosition' = [lastPosition EXCEPT ![j] = merged]
        /\ IF "AcknowledgeAcrossTerms" \in Unsafe
           THEN UNCHANGED <<currentTerm, votedFor, votes, forgets, state>>
           ELSE AdoptTerm(j, currentTerm[i])
        /\ UNCHANGED <<log, durable, commitPoint, syncSource, committed>>

\* The primary commits an entry of its own term that a majority has (1), and all before it.
AdvanceCommitPoint(i) ==
    /\ state[i] = "Primary"
    /\ \E index \in 1..Len(log[i]) :
        LET opTime == OpTime(log[i][index], index)
        IN  /\ commitPoint[i] < opTime
            /\ \/ log[i][index] = currentTerm[i]
               \/ "CommitOlderTerms" \in Unsafe
            /\ {j \in Member : Position(i, j) >= opTime} \in Quorums
            /\ commitPoint' = [commitPoint EXCEPT ![i] = opTime]
            /\ committed' = [committed EXCEPT ![currentTerm[i]] = FirstOf(log[i], index)]
    /\ UNCHANGED <<state, currentTerm, votedFor, votes, forgets, log, durable, syncSource, lastPosition>>

\* With a batch, even an empty one, that begins with my last entry comes the source's commit point; it is taken up to
\* my own last entry (11).
LearnCommitPointFromSyncSource(i, j) ==
    /\ state[i] # "Primary"
    /\ MayPullFrom(i, j)
    /\ Continues(i, j)
    /\ LET learned == IF "UnclampedCommitPoint" \in Unsafe
                      THEN commitPoint[j] ELSE Lower(commitPoint[j], Last(i))
       IN  /\ commitPoint[i] < learned
           /\ commitPoint' = [commitPoint EXCEPT ![i] = learned]
    /\ UNCHANGED <<state, currentTerm, votedFor, votes, forgets, log, durable, syncSource, committed, lastPosition>>

\* From a heartbeat it is taken only if its term is that of my own last entry: then both lie in the log of that
\* term's one primary (10).
LearnCommitPointFromHeartbeat(i, j) ==
    /\ i # j
    /\ \/ TermOf(commitPoint[j]) = LastTerm(log[i])
       \/ "HeartbeatOfAppendixA" \in Unsafe
    /\ LET learned == Lower(commitPoint[j], Last(i))
       IN  /\ commitPoint[i] < learned
           /\ commitPoint' = [commitPoint EXCEPT ![i] = learned]
    /\ UNCHANGED <<state, currentTerm, votedFor, votes, forgets, log, durable, syncSource, committed, lastPosition>>

-----------------------------------------------------------------------------
(* Sync sources *)

\* Only a member strictly ahead is chosen (9).
ChooseSyncSource(i, j) ==
    /\ TracksSyncSource
    /\ state[i] # "Primary"
    /\ syncSource[i] = Nil
    /\ Ahead(j, i)
    /\ syncSource' = [syncSource EXCEPT ![i] = j]
    /\ UNCHANGED <<state, currentTerm, votedFor, votes, forgets, log, durable, commitPoint, committed, lastPosition>>

\* With every batch the source is looked at again: one that is not ahead is kept only if it may yet have more,
\* because it is the primary, or pulls from a third member (9).
RecheckSyncSource(i) ==
    LET j == syncSource[i]
    IN  /\ TracksSyncSource
        /\ j # Nil
        /\ "KeepSyncSource" \notin Unsafe
        /\ \/ Last(j) < Last(i)
           \/ ~ Ahead(j, i) /\ state[j] # "Primary" /\ syncSource[j] \in {Nil, i}
        /\ syncSource' = [syncSource EXCEPT ![i] = Nil]
        /\ UNCHANGED <<state, currentTerm, votedFor, votes, forgets, log, durable,
                       commitPoint, committed, lastPosition>>

-----------------------------------------------------------------------------
(* Disks and crashes *)

Sync(i) ==
    /\ durable[i] < Len(log[i])
    /\ durable' = [durable EXCEPT ![i] = Len(log[i])]
    /\ UNCHANGED <<state, currentTerm, votedFor, votes, forgets, log, commitPoint,
                   syncSource, committed, lastPosition>>

\* A member starts again with the term and the vote that were persisted (12), and with the entries that were synced,
\* though others may hold more of them (19).
CrashAndRestart(i) ==
    /\ Crashes
    /\ state' = [state EXCEPT ![i] = "Secondary"]
    /\ log' = [log EXCEPT ![i] = FirstOf(@, durable[i])]
    /\ currentTerm' = IF forgets[i] = Nil THEN currentTerm ELSE [currentTerm EXCEPT ![i] = forgets[i][1]]
    /\ votedFor' = [votedFor EXCEPT ![i] =
           IF "ForgetVote" \in Unsafe THEN Nil ELSE IF forgets[i] = Nil THEN @ ELSE forgets[i][2]]
    /\ votes' = [votes EXCEPT ![i] = {}]
    /\ forgets' = [forgets EXCEPT ![i] = Nil]
    /\ commitPoint' = [commitPoint EXCEPT ![i] = ZeroOpTime]
    /\ syncSource' = [syncSource EXCEPT ![i] = Nil]
    /\ lastPosition' = [lastPosition EXCEPT ![i] = [j \in Member |-> ZeroOpTime]]
    /\ UNCHANGED <<durable, committed>>

-----------------------------------------------------------------------------

Next ==
    \/ \E i \in Member :
        \/ \E quorum \in LeastQuorums : BecomePrimary(i, quorum)
        \/ RequestVotes(i)
        \/ PersistOwnVote(i)
        \/ WinElection(i)
        \/ Stepdown(i)
        \/ ClientWrite(i)
        \/ AdvanceCommitPoint(i)
        \/ RecheckSyncSource(i)
        \/ Sync(i)
        \/ CrashAndRestart(i)
    \/ \E i, j \in Member :
        \/ GrantVote(i, j)
        \/ LearnTerm(i, j)
        \/ PullEntries(i, j)
        \/ RollbackOplog(i, j)
        \/ CatchUp(i, j)
        \/ UpdatePosition(i, j)
        \/ LearnCommitPointFromSyncSource(i, j)
        \/ LearnCommitPointFromHeartbeat(i, j)
        \/ ChooseSyncSource(i, j)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Safety *)

OnePrimaryPerTerm ==
    \A i, j \in Member :
        state[i] = "Primary" /\ state[j] = "Primary" /\ i # j => currentTerm[i] # currentTerm[j]

\* Two logs with the same entry are the same up to it.
LogMatching ==
    \A i, j \in Member : \A index \in 1..Len(log[i]) :
        index <= Len(log[j]) /\ log[i][index] = log[j][index] =>
            FirstOf(log[i], index) = FirstOf(log[j], index)

\* (5)
OpTimesStrictlyIncrease == \A i \in Member : InOrder(log[i])

\* What was committed in a term is in the log of every primary of a later term. The term is that in which it was
\* committed, not the entry's own.
LeaderCompleteness ==
    \A i \in Member : \A term \in Terms :
        state[i] = "Primary" /\ term < currentTerm[i] => IsPrefix(committed[term], log[i])

\* What was committed stays on a majority of disks.
CommittedOnMajority ==
    \A term \in Terms :
        {i \in Member : IsPrefix(committed[term], FirstOf(log[i], durable[i]))} \in Quorums

\* No two terms committed different histories.
CommittedHistoriesAgree ==
    \A one, other \in Terms :
        IsPrefix(committed[one], committed[other]) \/ IsPrefix(committed[other], committed[one])

CommitPointWithinOwnLog == \A i \in Member : Contains(log[i], commitPoint[i])

\* Nobody believes committed what no primary committed.
CommitPointIsCommitted ==
    \A i \in Member :
        commitPoint[i] # ZeroOpTime => \E term \in Terms : Contains(committed[term], commitPoint[i])

\* How much of a log is committed, or believed to be.
CommittedLength(i) ==
    LET lengths == {IndexOf(commitPoint[i])} \cup {CommonPoint(committed[term], log[i]) : term \in Terms}
    IN  CHOOSE longest \in lengths : \A length \in lengths : length <= longest

\* A committed entry never leaves a disk.
NeverRollBackCommitted ==
    [][\A i \in Member :
        \/ log'[i] = log[i]
        \/ IsPrefix(FirstOf(log[i], Lower(CommittedLength(i), durable[i])), log'[i])]_vars

\* Except that a member which starts again has to learn it anew.
CommitPointMonotone ==
    [][\A i \in Member :
        commitPoint'[i] >= commitPoint[i] \/ (Crashes /\ commitPoint'[i] = ZeroOpTime)]_vars

-----------------------------------------------------------------------------
(* Liveness: once members neither fail nor stand for election any more *)

\* The last election is over, one member is primary and has begun to write; the others may have entries that it lacks,
\* and any sync sources, a cycle of them included. Heartbeats tell no commit points here: what goes along sync sources
\* must do.
HealedInit ==
    \E primary \in Member :
        /\ primary = CHOOSE i \in Member : TRUE
        /\ state = [i \in Member |-> IF i = primary THEN "Primary" ELSE "Secondary"]
        /\ currentTerm = [i \in Member |-> MaxTerm]
        /\ votedFor = [i \in Member |-> primary]
        /\ votes = [i \in Member |-> {}]
        /\ forgets = [i \in Member |-> Nil]
        /\ \E before \in {<<>>, <<1>>} : \E others \in [Member -> {<<>>, <<1>>, <<1, 1>>}] :
            /\ others[primary] = <<>>
            /\ log = [i \in Member |-> IF i = primary THEN Append(before, MaxTerm) ELSE others[i]]
        /\ durable = [i \in Member |-> Len(log[i])]
        /\ commitPoint = [i \in Member |-> ZeroOpTime]
        /\ syncSource \in [Member -> Member \cup {Nil}]
        /\ syncSource[primary] = Nil
        /\ \A i \in Member : syncSource[i] # i
        /\ committed = [term \in Terms |-> <<>>]
        /\ lastPosition = [i \in Member |-> [j \in Member |-> ZeroOpTime]]

HealedNext ==
    \/ \E i \in Member : ClientWrite(i) \/ AdvanceCommitPoint(i) \/ RecheckSyncSource(i)
    \/ \E i, j \in Member :
        \/ ChooseSyncSource(i, j)
        \/ PullEntries(i, j)
        \/ RollbackOplog(i, j)
        \/ UpdatePosition(i, j)
        \/ LearnCommitPointFromSyncSource(i, j)

\* A client need not write.
HealedSpec ==
    /\ HealedInit
    /\ [][HealedNext]_vars
    /\ \A i \in Member :
        /\ WF_vars(AdvanceCommitPoint(i))
        /\ WF_vars(RecheckSyncSource(i))
        /\ WF_vars(\E j \in Member : ChooseSyncSource(i, j))
        /\ WF_vars(\E j \in Member : PullEntries(i, j))
        /\ WF_vars(\E j \in Member : RollbackOplog(i, j))
        /\ WF_vars(\E j \in Member : UpdatePosition(i, j))
        /\ WF_vars(\E j \in Member : LearnCommitPointFromSyncSource(i, j))

\* In the end all have one log, and know all of it committed.
CommitPointSpreads ==
    <>[](\A i, j \in Member : log[i] = log[j] /\ commitPoint[i] = Last(i))

\* No two members pull from one another for ever.
NoLastingCycle ==
    \A i, j \in Member : ~ <>[](i # j /\ syncSource[i] = j /\ syncSource[j] = i)
=============================================================================
