"""What the user asks for with models: choose one, use the loaded one, load again, cancel a load."""

from __future__ import annotations

from collections.abc import Callable

from app.chat.answering.answers import Answers
from app.chat.answering.chat_models import ChatModels, missing_words
from app.chat.answering.model_switch import ModelSwitch
from app.chat.models.model_loader import ModelLoader, usual_model
from app.domain.model_ref import Local, ModelRef
from app.domain.parts import ErrorPart
from app.state.chat import ModelPhase, State


class ModelUse:
    """Changes the model of the shown chat, and which one is loaded."""

    def __init__(
        self,
        state: State,
        chats: ChatModels,
        loader: ModelLoader,
        switch: ModelSwitch,
        answers: Answers,
        last_model: Callable[[], str],
    ) -> None:
        """`last_model` is the path of the model that was used last; "": none."""
        self._state, self._chats, self._loader = state, chats, loader
        self._switch, self._answers, self._last_model = switch, answers, last_model

    def choose(self, model: ModelRef) -> None:
        """Answer in the shown chat by this model from now on.

        A model file is loaded in place of the loaded one, after the answers in progress.
        """
        self._chats.choose(self._state.current, model)
        if isinstance(model, Local):
            self._switch.load(model)
        self._answers.start_next()

    def use_loaded(self) -> None:
        """Answer in the shown chat by the loaded model from now on."""
        model = self._state.model
        if model.model is not None and model.phase is ModelPhase.READY:
            self._chats.choose(self._state.current, model.model)
            self._answers.start_next()

    def reload(self) -> None:
        """Load the loaded model again, if its settings have changed."""
        model = self._state.model.model
        if isinstance(model, Local):
            self._switch.load(model)

    def cancel_load(self) -> None:
        """Cancel the load in progress, and stop the answers that wait for it."""
        model = self._state.model
        self._loader.cancel()
        if model.model is not None and model.phase is ModelPhase.LOADING:
            self._answers.stop_waiting(model.model)

    def give_up(self) -> None:
        """Keep the loaded model, in place of the one that waits to be loaded."""
        self._chats.undo_choice()
        self._switch.drop()

    def load_for_answers(self, model: ModelRef | None) -> None:
        """Load the model that answers wait for, None: the last used one or the only one there is."""
        if isinstance(model, Local):
            self._switch.load(model)
        elif model is not None:
            words = missing_words(model, self._state.model_name(model))
            self._answers.fail_waiting(ErrorPart(file=model.file_name, message=words), model)
        else:
            usable = [file.path for file in self._state.installed if not file.bad]
            path = usual_model(self._last_model(), usable)
            if path is not None:
                self._switch.load(Local(path))
