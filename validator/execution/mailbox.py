"""Messages between actors (SPEC §14): handlers do not call each other, they queue messages that run later in the block.

Messages run in one global order, that of sending. Each runs with the cycles and cells that its sender reserved and paid
for.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from validator.chain.records import Actor, QueuedMessage, message_key
from validator.primitives.errors import Rejection
from validator.primitives.params import Parameters
from validator.primitives.types import Address, is_name
from validator.state.working_set import World

MIN_MESSAGE_CYCLES: Final = 2_000
MESSAGES_PER_TRANSACTION: Final = 1_024
MESSAGES_PER_DEFERRED_RUN: Final = 2
"""Maximum number of messages and job requests of one timer fire, callback or message."""


def within_limits(cycles: int, cells: int, parameters: Parameters) -> bool:
    """Whether a message may reserve this many cycles and cells."""
    return MIN_MESSAGE_CYCLES <= cycles <= parameters.message_cycles and 0 <= cells <= parameters.message_cells


def enqueue(world: World, message: QueuedMessage, parameters: Parameters) -> None:
    """Put a message into its receiver's mailbox.

    Raises ``MessageHandlerInvalid``, ``UnknownActor`` or ``MailboxFull``, checked in this order.
    """
    if not is_name(message.handler, may_be_empty=True):
        raise Rejection("MessageHandlerInvalid")
    receiver = world.actor(message.to)
    if receiver is None:
        raise Rejection("UnknownActor")
    waiting = receiver.mailbox_bytes + len(message.payload)
    if waiting > parameters.mailbox_bytes:
        raise Rejection("MailboxFull")
    world.put_actor(message.to, replace(receiver, mailbox_bytes=waiting))
    chain = world.globals
    world.put(message_key(chain.next_message), message)
    world.globals = replace(chain, next_message=chain.next_message + 1)


def first(world: World) -> QueuedMessage:
    """The message that runs next; there must be one."""
    message: QueuedMessage | None = world.get(message_key(world.globals.first_message))
    assert message is not None, "queued messages are numbered without gaps"
    return message


def dequeue(world: World, message: QueuedMessage) -> Actor:
    """Remove the first message from its mailbox; it is used up even if it fails. Returns its receiver."""
    chain = world.globals
    world.put(message_key(chain.first_message), None)
    world.globals = replace(chain, first_message=chain.first_message + 1)
    receiver = world.actor(message.to)
    assert receiver is not None, "a message's receiver exists"
    receiver = replace(receiver, mailbox_bytes=receiver.mailbox_bytes - len(message.payload))
    world.put_actor(Address(message.to), receiver)
    return receiver
