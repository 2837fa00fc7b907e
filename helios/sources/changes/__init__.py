"""Sources of database changes from Kafka topics: Debezium's envelopes, and change logs in JSON."""
