"""Objects of Kafka's clients."""

from __future__ import annotations

from typing import Protocol, TypeVar

from helios.spark.jvm.types.java import JavaCollection, JavaIterator, JavaList, JavaMap, JavaObject, JavaSet

T_co = TypeVar("T_co", covariant=True)


class JavaKafkaFuture(JavaObject, Protocol[T_co]):
    """An `org.apache.kafka.common.KafkaFuture`."""

    def get(self) -> T_co: ...


class JavaTopicPartition(JavaObject, Protocol):
    """An `org.apache.kafka.common.TopicPartition`."""

    def topic(self) -> str: ...

    def partition(self) -> int: ...


class JavaTopicDescription(JavaObject, Protocol):
    """An `org.apache.kafka.clients.admin.TopicDescription`."""

    def name(self) -> str: ...

    def topicId(self) -> JavaObject: ...

    def partitions(self) -> JavaList[JavaObject]: ...


class JavaDescribeTopics(JavaObject, Protocol):
    """An `org.apache.kafka.clients.admin.DescribeTopicsResult`."""

    def topicNameValues(self) -> JavaMap[str, JavaKafkaFuture[JavaTopicDescription]]: ...


class JavaListTopics(JavaObject, Protocol):
    """An `org.apache.kafka.clients.admin.ListTopicsResult`."""

    def names(self) -> JavaKafkaFuture[JavaSet[str]]: ...


class JavaOffsetInfo(JavaObject, Protocol):
    """An `org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo`."""

    def offset(self) -> int: ...


class JavaListOffsets(JavaObject, Protocol):
    """An `org.apache.kafka.clients.admin.ListOffsetsResult`."""

    def partitionResult(self, partition: JavaTopicPartition) -> JavaKafkaFuture[JavaOffsetInfo]: ...


class JavaAdmin(JavaObject, Protocol):
    """An `org.apache.kafka.clients.admin.Admin`."""

    def listTopics(self) -> JavaListTopics: ...

    def describeTopics(self, names: JavaCollection[str]) -> JavaDescribeTopics: ...

    def listOffsets(self, wanted: JavaMap[JavaTopicPartition, JavaObject], options: JavaObject) -> JavaListOffsets: ...

    def close(self) -> None: ...


class JavaConsumerRecord(JavaObject, Protocol):
    """An `org.apache.kafka.clients.consumer.ConsumerRecord`."""

    def topic(self) -> str: ...

    def partition(self) -> int: ...

    def timestamp(self) -> int: ...


class JavaConsumerRecords(JavaObject, Protocol):
    """An `org.apache.kafka.clients.consumer.ConsumerRecords`."""

    def iterator(self) -> JavaIterator[JavaConsumerRecord]: ...


class JavaConsumer(JavaObject, Protocol):
    """An `org.apache.kafka.clients.consumer.Consumer`."""

    def assign(self, partitions: JavaCollection[JavaTopicPartition]) -> None: ...

    def seek(self, partition: JavaTopicPartition, offset: int) -> None: ...

    def pause(self, partitions: JavaCollection[JavaTopicPartition]) -> None: ...

    def poll(self, timeout: JavaObject) -> JavaConsumerRecords: ...

    def close(self) -> None: ...
