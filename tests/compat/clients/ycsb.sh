exec bash ycsb/run.sh
