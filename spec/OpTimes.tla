------------------------------- MODULE OpTimes -------------------------------
(***************************************************************************)
(* Logs and OpTimes, as the specifications use them.                       *)
(*                                                                         *)
(* A log is the sequence of its entries' terms; an entry's index stands    *)
(* for its timestamp. What an entry does to documents is left out.         *)
(*                                                                         *)
(* An OpTime is a term and an index, written as one number so that OpTimes *)
(* compare by term first: 23 is the third entry of a log, of term 2. This  *)
(* holds for logs of up to nine entries.                                   *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

OpTime(term, index) == term * 10 + index
TermOf(opTime) == opTime \div 10
IndexOf(opTime) == opTime % 10

\* Before the first entry.
ZeroOpTime == 0

Lower(a, b) == IF a < b THEN a ELSE b
Higher(a, b) == IF a < b THEN b ELSE a

LastTerm(entries) == IF entries = <<>> THEN 0 ELSE entries[Len(entries)]

LastOpTime(entries) == IF entries = <<>> THEN ZeroOpTime ELSE OpTime(entries[Len(entries)], Len(entries))

Contains(entries, opTime) ==
    IF opTime = ZeroOpTime THEN TRUE
    ELSE IndexOf(opTime) <= Len(entries) /\ entries[IndexOf(opTime)] = TermOf(opTime)

FirstOf(entries, count) == SubSeq(entries, 1, count)

IsPrefix(short, long) == Len(short) <= Len(long) /\ short = FirstOf(long, Len(short))

\* The length of the longest common beginning of two logs: where rollback goes to.
CommonPoint(a, b) ==
    CHOOSE count \in 0..Lower(Len(a), Len(b)) :
        /\ FirstOf(a, count) = FirstOf(b, count)
        /\ ~ (count < Len(a) /\ count < Len(b) /\ a[count + 1] = b[count + 1])

Majorities(set) == {some \in SUBSET set : 2 * Cardinality(some) > Cardinality(set)}

\* Majorities without a member to spare; who has one of those has any.
LeastMajorities(set) == {some \in SUBSET set : Cardinality(some) = Cardinality(set) \div 2 + 1}

\* No two entries of a log stand in the wrong order.
InOrder(entries) == \A index \in 2..Len(entries) : entries[index - 1] <= entries[index]
=============================================================================
