#!/bin/bash
exec java -Xmx256m -cp '/opt/kafka/libs/*' org.apache.kafka.tools.TopicCommand "$@"
