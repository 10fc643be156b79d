--------------------------- MODULE Reconfiguration ---------------------------
(***************************************************************************)
(* Logless reconfiguration: the configuration is no entry of the oplog; it *)
(* has a version and a term, and travels by heartbeats on its own.         *)
(*                                                                         *)
(* Elections, pulls and commits are as in module Replication, but smaller: *)
(* an election is one step, and the primary commits when it sees entries   *)
(* on members that are in no later term. How positions and commit points   *)
(* travel, catch-up and crashes are left to that module. Numbers in round  *)
(* brackets, as (15), are those of the rules listed in README.md.          *)
(***************************************************************************)
EXTENDS OpTimes, TLC

CONSTANTS
    Member,             \* all that may ever vote; all hold data
    MaxTerm,
    MaxLog,             \* with 0 configurations are explored alone, for more members
    MaxVersion,
    Unsafe

Variants == {
    "TwoVotersAtOnce",          \* (15)
    "ConfigNotOnMajority",      \* the next configuration before the current one is on a majority (15)
    "NoRecommit",               \* the next configuration before earlier commits are recommitted in the current one (15)
    "KeepConfigTerm",           \* stepping up leaves the configuration as it is (16)
    "VoteForOlderConfig"        \* (14)
}

ASSUME Unsafe \subseteq Variants

VARIABLES
    state,          \* "Primary" or "Secondary"
    currentTerm,
    log,
    config,         \* of each member: voters, term, version
    \* Not of any member, except that a primary knows its own term's: for each term the log up to what its primary
    \* committed.
    committed

vars == <<state, currentTerm, log, config, committed>>

Symmetry == Permutations(Member)

Terms == 1..MaxTerm

\* Constants, so that they are computed once.
MajoritiesOf == [voters \in SUBSET Member \ {{}} |-> Majorities(voters)]
LeastMajoritiesOf == [voters \in SUBSET Member \ {{}} |-> LeastMajorities(voters)]

Init ==
    /\ state = [i \in Member |-> "Secondary"]
    /\ currentTerm = [i \in Member |-> 0]
    /\ log = [i \in Member |-> <<>>]
    /\ \E voters \in SUBSET Member \ {{}} :
        config = [i \in Member |-> [voters |-> voters, term |-> 0, version |-> 1]]
    /\ committed = [term \in Terms |-> <<>>]

Last(i) == LastOpTime(log[i])

\* Configurations are ordered by term, then version (14).
Older(one, other) ==
    one.term < other.term \/ (one.term = other.term /\ one.version < other.version)

AdoptTerm(i, term) ==
    IF term > currentTerm[i]
    THEN /\ currentTerm' = [currentTerm EXCEPT ![i] = term]
         /\ state' = [state EXCEPT ![i] = "Secondary"]
    ELSE UNCHANGED <<currentTerm, state>>

-----------------------------------------------------------------------------
(* Elections *)

\* A voter refuses an older configuration and an older OpTime (14). That it votes once in a term is here: only
\* below the candidate's term.
Grants(j, i, term) ==
    /\ currentTerm[j] < term
    /\ Last(i) >= Last(j)
    /\ "VoteForOlderConfig" \in Unsafe \/ ~ Older(config[i], config[j])

\* A majority of the candidate's configuration elects it; it rewrites the configuration with the new term (16).
BecomePrimary(i, quorum) ==
    LET term == currentTerm[i] + 1
    IN  /\ state[i] = "Secondary"
        /\ term <= MaxTerm
        /\ i \in quorum
        /\ \A j \in quorum : Grants(j, i, term)
        /\ state' = [j \in Member |->
               IF j = i THEN "Primary" ELSE IF j \in quorum THEN "Secondary" ELSE state[j]]
        /\ currentTerm' = [j \in Member |-> IF j \in quorum THEN term ELSE currentTerm[j]]
        /\ config' = IF "KeepConfigTerm" \in Unsafe THEN config ELSE [config EXCEPT ![i].term = term]
        /\ UNCHANGED <<log, committed>>

Stepdown(i) ==
    /\ state[i] = "Primary"
    /\ state' = [state EXCEPT ![i] = "Secondary"]
    /\ UNCHANGED <<currentTerm, log, config, committed>>

LearnTerm(i, j) ==
    /\ currentTerm[i] < currentTerm[j]
    /\ AdoptTerm(i, currentTerm[j])
    /\ UNCHANGED <<log, config, committed>>

-----------------------------------------------------------------------------
(* The log: as in module Replication, without catch-up *)

ClientWrite(i) ==
    /\ state[i] = "Primary"
    /\ Len(log[i]) < MaxLog
    /\ log' = [log EXCEPT ![i] = Append(@, currentTerm[i])]
    /\ UNCHANGED <<state, currentTerm, config, committed>>

PullEntries(i, j) ==
    /\ state[i] = "Secondary"
    /\ Last(i) < Last(j)
    /\ Contains(log[j], Last(i))
    /\ AdoptTerm(i, currentTerm[j])
    /\ log' = [log EXCEPT ![i] = Append(@, log[j][Len(@) + 1])]
    /\ UNCHANGED <<config, committed>>

RollbackOplog(i, j) ==
    /\ state[i] = "Secondary"
    /\ Last(i) < Last(j)
    /\ ~ Contains(log[j], Last(i))
    /\ log[j][Len(log[j])] >= currentTerm[i]
    /\ log[j][Len(log[j])] >= currentTerm[j]
    /\ AdoptTerm(i, currentTerm[j])
    /\ log' = [log EXCEPT ![i] = FirstOf(@, CommonPoint(@, log[j]))]
    /\ UNCHANGED <<config, committed>>

\* Voters of i's configuration that hold i's log up to an index and are in no later term.
Holding(i, index) ==
    {j \in config[i].voters :
        currentTerm[j] <= currentTerm[i] /\ IsPrefix(FirstOf(log[i], index), log[j])}

\* The primary commits the last entry of its own term that a majority of its configuration has, and all before it.
AdvanceCommitPoint(i) ==
    /\ state[i] = "Primary"
    /\ \E index \in 1..Len(log[i]) :
        /\ index > Len(committed[currentTerm[i]])
        /\ log[i][index] = currentTerm[i]
        /\ Holding(i, index) \in MajoritiesOf[config[i].voters]
        /\ committed' = [committed EXCEPT ![currentTerm[i]] = FirstOf(log[i], index)]
    /\ UNCHANGED <<state, currentTerm, log, config>>

-----------------------------------------------------------------------------
(* Configurations *)

ConfigOnMajority(i) ==
    {j \in config[i].voters : config[j] = config[i] /\ currentTerm[j] = currentTerm[i]}
        \in MajoritiesOf[config[i].voters]

\* The primary has committed in its own term, with that whatever was committed before; and what it has committed is on
\* a majority of the current configuration, not only of the one that it was committed in.
Recommitted(i) ==
    LET index == Len(committed[currentTerm[i]])
    IN  MaxLog = 0 \/ (index > 0 /\ Holding(i, index) \in MajoritiesOf[config[i].voters])

\* One voter more or one less, with the current configuration on a majority and earlier commits recommitted in it (15).
\* A primary does not remove itself.
Reconfig(i, voters) ==
    /\ state[i] = "Primary"
    /\ config[i].version < MaxVersion
    /\ i \in voters
    /\ LET changed == (voters \ config[i].voters) \cup (config[i].voters \ voters)
       IN  \/ Cardinality(changed) = 1
           \/ "TwoVotersAtOnce" \in Unsafe /\ Cardinality(changed) = 2
    /\ ConfigOnMajority(i) \/ "ConfigNotOnMajority" \in Unsafe
    /\ Recommitted(i) \/ "NoRecommit" \in Unsafe
    /\ config' = [config EXCEPT ![i] =
           [voters |-> voters, term |-> currentTerm[i], version |-> config[i].version + 1]]
    /\ UNCHANGED <<state, currentTerm, log, committed>>

\* By heartbeat, with the sender's term.
LearnConfig(i, j) ==
    /\ state[i] = "Secondary"
    /\ Older(config[i], config[j])
    /\ AdoptTerm(i, currentTerm[j])
    /\ config' = [config EXCEPT ![i] = config[j]]
    /\ UNCHANGED <<log, committed>>

-----------------------------------------------------------------------------

Next ==
    \/ \E i \in Member :
        \/ \E quorum \in LeastMajoritiesOf[config[i].voters] : BecomePrimary(i, quorum)
        \/ Stepdown(i)
        \/ ClientWrite(i)
        \/ AdvanceCommitPoint(i)
        \/ \E voters \in SUBSET Member : Reconfig(i, voters)
    \/ \E i, j \in Member :
        \/ LearnTerm(i, j)
        \/ PullEntries(i, j)
        \/ RollbackOplog(i, j)
        \/ LearnConfig(i, j)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Safety, as in module Replication *)

OnePrimaryPerTerm ==
    \A i, j \in Member :
        state[i] = "Primary" /\ state[j] = "Primary" /\ i # j => currentTerm[i] # currentTerm[j]

LogMatching ==
    \A i, j \in Member : \A index \in 1..Len(log[i]) :
        index <= Len(log[j]) /\ log[i][index] = log[j][index] =>
            FirstOf(log[i], index) = FirstOf(log[j], index)

OpTimesStrictlyIncrease == \A i \in Member : InOrder(log[i])

LeaderCompleteness ==
    \A i \in Member : \A term \in Terms :
        state[i] = "Primary" /\ term < currentTerm[i] => IsPrefix(committed[term], log[i])

CommittedHistoriesAgree ==
    \A one, other \in Terms :
        IsPrefix(committed[one], committed[other]) \/ IsPrefix(committed[other], committed[one])

\* One version of one term is one configuration.
ConfigsAgree ==
    \A i, j \in Member :
        config[i].term = config[j].term /\ config[i].version = config[j].version => config[i] = config[j]

\* Every majority that could elect a primary has a member that holds what was committed, and would refuse a candidate
\* without it.
CommittedOnEveryQuorum ==
    \A i \in Member : \A quorum \in LeastMajoritiesOf[config[i].voters] :
        (\A j \in quorum : ~ Older(config[i], config[j])) =>
            \A term \in Terms : \E j \in quorum : IsPrefix(committed[term], log[j])

CommittedLength(i) ==
    LET lengths == {CommonPoint(committed[term], log[i]) : term \in Terms}
    IN  CHOOSE longest \in lengths : \A length \in lengths : length <= longest

\* A committed entry never leaves a log.
NeverRollBackCommitted ==
    [][\A i \in Member :
        log'[i] = log[i] \/ IsPrefix(FirstOf(log[i], CommittedLength(i)), log'[i])]_vars

\* A term's primary never commits less than before.
CommitPointMonotone ==
    [][committed' = committed \/ \A term \in Terms : IsPrefix(committed[term], committed'[term])]_vars
=============================================================================
