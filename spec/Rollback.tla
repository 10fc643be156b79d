------------------------------- MODULE Rollback -------------------------------
(***************************************************************************)
(* How one member takes back what it logged and the set never committed,   *)
(* step by step, with its documents, its disk, those who read from it and  *)
(* those who copy it. `Replication` has all of that as one step, of logs.  *)
(*                                                                         *)
(* The rest of the set is an assumption here: one log, `source`, that has  *)
(* all that is committed; primaries change at any moment, and what the one *)
(* before did not commit the next one may not have. That elections and     *)
(* commits make it so is what `Replication` shows. Numbers in round        *)
(* brackets, as (R2), are those of the rules listed in README.md.          *)
(*                                                                         *)
(* There is one document, to which every entry appends itself; so a        *)
(* document says which entries it has, and in which order. Versions of it  *)
(* are kept with their stamps, as storage keeps them: a stamp is its       *)
(* entry's timestamp, but where a rollback left a higher one.              *)
(***************************************************************************)
EXTENDS OpTimes, TLC

CONSTANTS
    Nil,
    MaxTerm,
    MaxLog,
    MaxCrashes,
    Losses,             \* whether a crash loses what was not synced: the machine's, not the process's
    Readers,            \* whether there are majority reads
    Copies,             \* whether a new member copies this one
    StraySource,        \* whether the source may lack what is committed, as if its disk had been put back
    Unsafe

Variants == {
    "RollBackCommitted",        \* (R2)
    "RemoveBeforeKept",         \* (R3)
    "TruncateFirst",            \* the log and the documents change in two writes (R4)
    "ForgetStamps",             \* stamps begin anew with every start (R5)
    "ReadAsOfTimestamp",        \* documents are restored as of a timestamp, not of its stamp (R6)
    "ForgetUncommitted",        \* versions are dropped up to what is applied (R7)
    "VolatileRollbackId",       \* (R8)
    "CopyAcrossLosses",         \* (R9)
    "FailReadersBefore",        \* those who wait are failed when a rollback begins, and not again when it has ended (R10)
    "AnswerAtOnce",             \* (R11)
    "AnswerUnsynced"            \* (R12)
}

ASSUME Unsafe \subseteq Variants

VARIABLES
    \* The set.
    term,
    source,             \* the log of its primary; while the member is primary, that of the others
    committed,          \* so much of the log as is committed
    leads,              \* whether the member is primary
    \* The member's disk.
    log,
    durable,            \* how many of the log's entries are synced
    versions,           \* of the document: pairs of a stamp and what it was
    bases,              \* pairs: behind the entry of that index, stamps went on from above that one
    historyFrom,        \* versions below this timestamp may be gone, unless they are the newest
    noted,              \* the commit point that was last noted
    rollbackId,
    kept,               \* whether all that was taken away is in files
    \* Its memory.
    commitPoint,        \* an index of its log
    phase,              \* of a rollback: "None", "Found", "Kept", "Truncated", "Restored"
    common,             \* where it goes to
    reader,             \* what a majority read saw that waits; Nil: none does
    \* Elsewhere.
    answered,           \* what the last majority read that was answered had seen
    copy,               \* what is being copied, and the rollback id of its beginning; Nil: nothing
    isCopySound,        \* whether all that was copied was in the log at the copy's end
    crashes

set == <<term, source, committed, leads>>
data == <<log, durable, versions, bases>>
rollback == <<phase, common, kept, rollbackId>>
others == <<reader, answered, copy, isCopySound>>
vars == <<set, data, historyFrom, noted, commitPoint, rollback, others, crashes>>

Init ==
    /\ term = 1
    /\ source = <<>>
    /\ committed = <<>>
    /\ leads = FALSE
    /\ log = <<>>
    /\ durable = 0
    /\ versions = {<<0, <<>>>>}
    /\ bases = {}
    /\ historyFrom = 0
    /\ noted = 0
    /\ rollbackId = 1
    /\ kept = TRUE
    /\ commitPoint = 0
    /\ phase = "None"
    /\ common = 0
    /\ reader = Nil
    /\ answered = <<>>
    /\ copy = Nil
    /\ isCopySound = TRUE
    /\ crashes = 0

-----------------------------------------------------------------------------
(* Stamps and versions *)

\* The highest stamp that was given up to the entry of that index, whatever was restored behind it.
RECURSIVE HighestAt(_, _)
\* The stamp of the entry of that index: its timestamp, unless those before went higher (R5).
StampOf(index, known) == IF index = 0 THEN 0 ELSE Higher(HighestAt(index - 1, known) + 1, index)
HighestAt(index, known) ==
    LET restored == {base[2] : base \in {b \in known : b[1] = index}}
    IN  IF restored = {} THEN StampOf(index, known) ELSE CHOOSE stamp \in restored : \A other \in restored : other <= stamp

\* The document as of a stamp, by the versions that are there.
AsOf(stamp, known) ==
    LET until == {version \in known : version[1] <= stamp}
    IN  IF until = {} THEN Nil ELSE (CHOOSE version \in until : \A other \in until : other[1] <= version[1])[2]

Highest(known) == (CHOOSE version \in known : \A other \in known : other[1] <= version[1])[1]

Document == AsOf(Highest(versions), versions)

\* A second version with a stamp takes the first one's place.
With(known, stamp, document) == {version \in known : version[1] # stamp} \cup {<<stamp, document>>}

\* One write: the entry, and what it does to the document.
Apply(entry) ==
    /\ log' = Append(log, entry)
    /\ versions' = With(versions, StampOf(Len(log) + 1, bases), Append(Document, entry))
    /\ durable' = IF Losses THEN durable ELSE Len(log) + 1
    /\ UNCHANGED bases

-----------------------------------------------------------------------------
(* The set *)

SourceWrites ==
    /\ ~ leads
    /\ Len(source) < MaxLog
    /\ source' = Append(source, term)
    /\ UNCHANGED <<term, committed, leads, data, historyFrom, noted, commitPoint, rollback, others, crashes>>

SourceCommits ==
    /\ ~ leads
    /\ \E index \in Len(committed) + 1 .. Len(source) :
        /\ source[index] = term
        /\ committed' = FirstOf(source, index)
    /\ UNCHANGED <<term, source, leads, data, historyFrom, noted, commitPoint, rollback, others, crashes>>

\* Another member becomes primary. What its predecessor did not commit it may not have.
SourceLeads ==
    /\ term < MaxTerm
    /\ term' = term + 1
    /\ leads' = FALSE
    /\ \E count \in (IF StraySource THEN 0 ELSE Len(committed)) .. Lower(Len(source), MaxLog - 1) :
        source' = Append(FirstOf(source, count), term + 1)
    /\ UNCHANGED <<committed, data, historyFrom, noted, commitPoint, rollback, others, crashes>>

\* This member does: it has all that is committed, and rolls nothing back.
MemberLeads ==
    /\ term < MaxTerm
    /\ ~ leads
    /\ phase = "None"
    /\ IsPrefix(committed, log)
    /\ ~ StraySource
    /\ term' = term + 1
    /\ leads' = TRUE
    /\ UNCHANGED <<source, committed, data, historyFrom, noted, commitPoint, rollback, others, crashes>>

MemberWrites ==
    /\ leads
    /\ Len(log) < MaxLog
    /\ Apply(term)
    /\ UNCHANGED <<set, historyFrom, noted, commitPoint, rollback, others, crashes>>

\* The others follow it, and roll back for that if they must.
SourceFollows ==
    /\ leads
    /\ \/ /\ IsPrefix(source, log)
          /\ Len(source) < Len(log)
          /\ source' = FirstOf(log, Len(source) + 1)
       \/ /\ ~ IsPrefix(source, log)
          /\ LastTerm(log) = term
          /\ source' = FirstOf(log, CommonPoint(source, log))
    /\ UNCHANGED <<term, committed, leads, data, historyFrom, noted, commitPoint, rollback, others, crashes>>

MemberCommits ==
    /\ leads
    /\ IsPrefix(source, log)
    /\ \E index \in Len(committed) + 1 .. Len(source) :
        /\ source[index] = term
        /\ committed' = FirstOf(source, index)
        /\ commitPoint' = index
    /\ UNCHANGED <<term, source, leads, data, historyFrom, noted, rollback, others, crashes>>

-----------------------------------------------------------------------------
(* Following *)

Pull ==
    /\ ~ leads
    /\ phase = "None"
    /\ IsPrefix(log, source)
    /\ Len(log) < Len(source)
    /\ Apply(source[Len(log) + 1])
    /\ UNCHANGED <<set, historyFrom, noted, commitPoint, rollback, others, crashes>>

Sync ==
    /\ durable < Len(log)
    /\ durable' = Len(log)
    /\ UNCHANGED <<set, log, versions, bases, historyFrom, noted, commitPoint, rollback, others, crashes>>

LearnCommitPoint ==
    /\ ~ leads
    /\ phase = "None"
    /\ IsPrefix(log, source)
    /\ IsPrefix(FirstOf(log, Lower(Len(committed), Len(log))), committed)
    /\ Lower(Len(committed), Len(log)) > commitPoint
    /\ commitPoint' = Lower(Len(committed), Len(log))
    /\ UNCHANGED <<set, data, historyFrom, noted, rollback, others, crashes>>

\* From time to time.
NoteCommitPoint ==
    /\ noted < commitPoint
    /\ noted' = commitPoint
    /\ UNCHANGED <<set, data, historyFrom, commitPoint, rollback, others, crashes>>

\* Versions go that no rollback reads, for what is committed is never rolled back (R7). Those that hide them are on disk then:
\* versions are dropped when files are merged.
ForgetHistory ==
    /\ historyFrom' = Lower(IF "ForgetUncommitted" \in Unsafe THEN Len(log) ELSE commitPoint, durable)
    /\ historyFrom' > historyFrom
    /\ versions' = {version \in versions :
           version[1] >= historyFrom' \/ \A other \in versions : other[1] <= historyFrom' => other[1] <= version[1]}
    /\ UNCHANGED <<set, log, durable, bases, noted, commitPoint, rollback, others, crashes>>

-----------------------------------------------------------------------------
(* Rolling back *)

\* Rules 7 and 7a.
HasParted ==
    /\ ~ leads
    /\ LastOpTime(log) < LastOpTime(source)
    /\ ~ IsPrefix(log, source)
    /\ LastTerm(source) = term

\* The last entry that both logs have is found (R1). If more than that is known to be committed, nothing is taken away (R2); nor if
\* history does not reach back so far: then the member is filled anew, which ends this module's story.
FindCommonEntry ==
    /\ phase = "None"
    /\ HasParted
    /\ LET found == CommonPoint(log, source)
       IN  /\ found >= commitPoint \/ "RollBackCommitted" \in Unsafe
           /\ found >= historyFrom
           /\ common' = found
    /\ phase' = "Found"
    /\ reader' = Nil
    /\ UNCHANGED <<set, data, historyFrom, noted, commitPoint, kept, rollbackId, answered, copy, isCopySound, crashes>>

\* What is taken away goes into files, and these are synced, before it is (R3).
Keep ==
    /\ phase = "Found"
    /\ phase' = "Kept"
    /\ UNCHANGED <<set, data, historyFrom, noted, commitPoint, common, kept, rollbackId, others, crashes>>

Truncate ==
    /\ log' = FirstOf(log, common)
    /\ durable' = common

\* What is restored is stamped above all that was (R5), and is what the document was as of the common entry's stamp (R6).
Restore ==
    LET before == AsOf(IF "ReadAsOfTimestamp" \in Unsafe THEN common ELSE StampOf(common, bases), versions)
        stamp == Highest(versions) + 1
    IN  /\ versions' = With(versions, stamp, before)
        /\ bases' = {base \in bases : base[1] < common} \cup {<<common, stamp>>}

\* The log's end, the documents, and the count of rollbacks change in one synced write (R4, R8).
RollBack ==
    /\ phase = "Kept" \/ (phase = "Found" /\ "RemoveBeforeKept" \in Unsafe)
    /\ kept' = (phase = "Kept")
    /\ rollbackId' = rollbackId + 1
    /\ Truncate
    /\ IF "TruncateFirst" \in Unsafe
       THEN phase' = "Truncated" /\ UNCHANGED <<versions, bases>>
       ELSE phase' = "Restored" /\ Restore
    /\ UNCHANGED <<set, historyFrom, noted, commitPoint, common, others, crashes>>

RestoreLater ==
    /\ phase = "Truncated"
    /\ phase' = "Restored"
    /\ Restore
    /\ UNCHANGED <<set, log, durable, historyFrom, noted, commitPoint, common, kept, rollbackId, others, crashes>>

\* Who read before this is told that a rollback came between; so were those who read before it began, only sooner (R10).
EndRollback ==
    /\ phase = "Restored"
    /\ phase' = "None"
    /\ common' = 0
    /\ kept' = TRUE
    /\ reader' = IF "FailReadersBefore" \in Unsafe THEN reader ELSE Nil
    /\ UNCHANGED <<set, data, historyFrom, noted, commitPoint, rollbackId, answered, copy, isCopySound, crashes>>

\* The member starts again with what its disk has; a rollback that was not written begins anew, and of one that was nothing is left to
\* be done. What was not synced is lost with the machine, documents and all; so is a copy that was being made from it (R9). A primary that
\* crashes is replaced first: what comes before it is back is no matter here.
CrashAndRestart ==
    /\ crashes < MaxCrashes
    /\ ~ leads
    /\ crashes' = crashes + 1
    /\ log' = FirstOf(log, durable)
    /\ versions' = {version \in versions : version[1] <= HighestAt(durable, bases)}
    /\ bases' = IF "ForgetStamps" \in Unsafe THEN {} ELSE bases
    /\ noted' = Lower(noted, durable)
    /\ commitPoint' = Lower(noted, durable)
    /\ phase' = "None"
    /\ common' = 0
    /\ rollbackId' = IF "VolatileRollbackId" \in Unsafe THEN 1 ELSE rollbackId
    /\ reader' = Nil
    /\ copy' = IF durable < Len(log) /\ "CopyAcrossLosses" \notin Unsafe THEN Nil ELSE copy
    /\ UNCHANGED <<set, durable, historyFrom, kept, answered, isCopySound>>

-----------------------------------------------------------------------------
(* Majority reads *)

\* A read sees the newest there is, whether or not a rollback is on its way.
BeginRead ==
    /\ Readers
    /\ reader = Nil
    /\ reader' = Document
    /\ UNCHANGED <<set, data, historyFrom, noted, commitPoint, rollback, answered, copy, isCopySound, crashes>>

\* And is answered when that is committed (R11) and would outlive this machine (R12). All that is compared is OpTimes.
AnswerRead ==
    /\ reader # Nil
    /\ \/ LastOpTime(reader) <= LastOpTime(FirstOf(log, commitPoint))
       \/ "AnswerAtOnce" \in Unsafe
    /\ \/ LastOpTime(reader) <= LastOpTime(FirstOf(log, durable))
       \/ Unsafe \cap {"AnswerAtOnce", "AnswerUnsynced"} # {}
    /\ answered' = reader
    /\ reader' = Nil
    /\ UNCHANGED <<set, data, historyFrom, noted, commitPoint, rollback, copy, isCopySound, crashes>>

-----------------------------------------------------------------------------
(* Copies *)

BeginCopy ==
    /\ Copies
    /\ copy = Nil
    /\ copy' = [rollbackId |-> rollbackId, document |-> Document]
    /\ UNCHANGED <<set, data, historyFrom, noted, commitPoint, rollback, reader, answered, isCopySound, crashes>>

\* A copy counts if its source has not rolled back since it began (R8). The log since then was applied to it.
EndCopy ==
    /\ copy # Nil
    /\ isCopySound' = (copy.rollbackId = rollbackId => IsPrefix(copy.document, log))
    /\ copy' = Nil
    /\ UNCHANGED <<set, data, historyFrom, noted, commitPoint, rollback, reader, answered, crashes>>

-----------------------------------------------------------------------------

Next ==
    \/ SourceWrites
    \/ SourceCommits
    \/ SourceLeads
    \/ MemberLeads
    \/ MemberWrites
    \/ SourceFollows
    \/ MemberCommits
    \/ Pull
    \/ Sync
    \/ LearnCommitPoint
    \/ NoteCommitPoint
    \/ ForgetHistory
    \/ FindCommonEntry
    \/ Keep
    \/ RollBack
    \/ RestoreLater
    \/ EndRollback
    \/ CrashAndRestart
    \/ BeginRead
    \/ AnswerRead
    \/ BeginCopy
    \/ EndCopy

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Properties *)

\* No entry of the log is missing in the documents, none is there twice, and nothing else is there.
DocumentsAreTheLog == Document = log

\* The same of every time that a rollback may go back to.
HistoryIsTheLog ==
    \A index \in historyFrom .. Len(log) : AsOf(StampOf(index, bases), versions) = FirstOf(log, index)

\* Whatever a member must take back it can.
HistoryReachesBack == HasParted => CommonPoint(log, source) >= historyFrom

\* All that was taken away is in files, when no rollback is under way.
RemovedIsKept == phase = "None" => kept

\* What was answered to a majority read stays so.
ReadsAreCommitted == IsPrefix(answered, committed)

\* Nor does this member answer less to the next one.
ReadsNeverGoBack == [][IsPrefix(answered, answered')]_vars

\* No member begins with what its source took back or lost.
CopyHasNothingRemoved == isCopySound

\* Nothing goes that the member knows to be committed, but with the machine.
NeverRollBackKnown == [][IsPrefix(FirstOf(log, Lower(commitPoint, durable)), log')]_vars

\* The commit point goes back to the one noted last in a crash, and never else.
CommitPointNeverGoesBack == [][commitPoint' >= Lower(commitPoint, IF crashes' = crashes THEN MaxLog ELSE noted')]_vars

\* Every rollback is counted, over a crash too.
RollbackIdGrows == [][rollbackId' >= rollbackId]_vars
===============================================================================
