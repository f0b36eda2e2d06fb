#!/bin/sh
# In the place of BLAST: one hit for each sequence of the fragment that -db names, as its alias file has them.
while [ "$1" != -db ]; do shift; done
while read -r key value; do
    case $key in
    FIRST_OID) first=$value ;;
    LAST_OID) last=$value ;;
    esac
done <"$2.pal"
for oid in $(seq "$first" "$last"); do
    printf 'q%d\ts%d\t99\t9\t0\t0\t1\t9\t1\t9\t%de-9\t20\n' $((oid % 2)) "$oid" $((oid * 7 % 10 + 1))
done
