; The installer's own texts in the languages of the app; those of its pages come with NSIS. It speaks
; the language of Windows, else English, the first one. tests/test_packages.py compares the languages.

!insertmacro MUI_LANGUAGE "English"
!insertmacro MUI_LANGUAGE "Arabic"
!insertmacro MUI_LANGUAGE "German"
!insertmacro MUI_LANGUAGE "Spanish"
!insertmacro MUI_LANGUAGE "French"
!insertmacro MUI_LANGUAGE "Japanese"
!insertmacro MUI_LANGUAGE "Korean"
!insertmacro MUI_LANGUAGE "PortugueseBR"
!insertmacro MUI_LANGUAGE "Russian"
!insertmacro MUI_LANGUAGE "SimpChinese"

!macro TEXTS language kind about data old others space open
  LangString Kind ${language} "${kind}"
  LangString About ${language} "${about}"
  LangString Data ${language} "${data}"
  LangString Old ${language} "${old}"
  LangString Others ${language} "${others}"
  LangString Space ${language} "${space}"
  LangString Open ${language} "${open}"
!macroend

!insertmacro TEXTS ${LANG_ENGLISH} \
  "Language model" \
  "Talk with a language model that runs on this computer" \
  "Chats, models and settings" \
  "Tokonoma needs Windows 10 or newer." \
  "$INSTDIR has files of another program. Choose another folder." \
  "$0 has $1 MB free, and Tokonoma needs $2 MB. Free some space." \
  "Tokonoma is open. Quit it, also in the notification area, then try again."

!insertmacro TEXTS ${LANG_ARABIC} \
  "نموذج لغوي" \
  "تحدّث مع نموذج لغوي يعمل على هذا الكمبيوتر" \
  "المحادثات والنماذج والإعدادات" \
  "يتطلب Tokonoma نظام Windows 10 أو أحدث." \
  "يحتوي المجلد $INSTDIR على ملفات برنامج آخر. اختر مجلدًا آخر." \
  "المساحة الفارغة على $0 هي $1 ميغابايت، ويحتاج Tokonoma إلى $2 ميغابايت. أفرغ بعض المساحة." \
  "Tokonoma مفتوح. أنهِه، في منطقة الإعلام أيضًا، ثم أعد المحاولة."

!insertmacro TEXTS ${LANG_GERMAN} \
  "Sprachmodell" \
  "Mit einem Sprachmodell sprechen, das auf diesem Computer läuft" \
  "Chats, Modelle und Einstellungen" \
  "Tokonoma braucht Windows 10 oder neuer." \
  "In $INSTDIR liegen Dateien eines anderen Programms. Einen anderen Ordner wählen." \
  "Auf $0 sind $1 MB frei, und Tokonoma braucht $2 MB. Speicherplatz freigeben." \
  "Tokonoma ist geöffnet. Es beenden, auch im Infobereich, dann erneut versuchen."

!insertmacro TEXTS ${LANG_SPANISH} \
  "Modelo de lenguaje" \
  "Converse con un modelo de lenguaje que se ejecuta en este equipo" \
  "Chats, modelos y ajustes" \
  "Tokonoma necesita Windows 10 o posterior." \
  "$INSTDIR contiene archivos de otro programa. Elija otra carpeta." \
  "$0 tiene $1 MB libres y Tokonoma necesita $2 MB. Libere espacio." \
  "Tokonoma está abierto. Salga de él, también en el área de notificación, e inténtelo de nuevo."

!insertmacro TEXTS ${LANG_FRENCH} \
  "Modèle de langage" \
  "Discuter avec un modèle de langage qui s’exécute sur cet ordinateur" \
  "Discussions, modèles et paramètres" \
  "Tokonoma nécessite Windows 10 ou une version plus récente." \
  "$INSTDIR contient des fichiers d’un autre programme. Choisissez un autre dossier." \
  "$0 a $1 Mo libres, et Tokonoma a besoin de $2 Mo. Libérez de l’espace." \
  "Tokonoma est ouvert. Quittez-le, aussi dans la zone de notification, puis réessayez."

!insertmacro TEXTS ${LANG_JAPANESE} \
  "言語モデル" \
  "このコンピューターで動作する言語モデルと会話する" \
  "チャット、モデル、設定" \
  "TokonomaにはWindows 10以降が必要です。" \
  "$INSTDIRには別のプログラムのファイルがあります。別のフォルダーを選択してください。" \
  "$0の空きは$1 MBで、Tokonomaには$2 MBが必要です。空きを増やしてください。" \
  "Tokonomaが開いています。通知領域のものも含めて終了してから、もう一度お試しください。"

!insertmacro TEXTS ${LANG_KOREAN} \
  "언어 모델" \
  "이 컴퓨터에서 실행되는 언어 모델과 대화" \
  "채팅, 모델 및 설정" \
  "Tokonoma에는 Windows 10 이상이 필요합니다." \
  "$INSTDIR에 다른 프로그램의 파일이 있습니다. 다른 폴더를 선택하세요." \
  "$0에 $1MB가 남아 있으며 Tokonoma에는 $2MB가 필요합니다. 공간을 확보하세요." \
  "Tokonoma가 열려 있습니다. 알림 영역에서도 종료한 다음 다시 시도하세요."

!insertmacro TEXTS ${LANG_PORTUGUESEBR} \
  "Modelo de linguagem" \
  "Converse com um modelo de linguagem executado neste computador" \
  "Conversas, modelos e configurações" \
  "O Tokonoma precisa do Windows 10 ou mais recente." \
  "$INSTDIR contém arquivos de outro programa. Escolha outra pasta." \
  "$0 tem $1 MB livres, e o Tokonoma precisa de $2 MB. Libere espaço." \
  "O Tokonoma está aberto. Saia dele, também na área de notificação, e tente de novo."

!insertmacro TEXTS ${LANG_RUSSIAN} \
  "Языковая модель" \
  "Общение с языковой моделью, которая работает на этом компьютере" \
  "Чаты, модели и настройки" \
  "Для Tokonoma нужна Windows 10 или новее." \
  "В папке $INSTDIR есть файлы другой программы. Выберите другую папку." \
  "На $0 свободно $1 МБ, а Tokonoma нужно $2 МБ. Освободите место." \
  "Tokonoma открыта. Выйдите из неё, в том числе в области уведомлений, и попробуйте снова."

!insertmacro TEXTS ${LANG_SIMPCHINESE} \
  "语言模型" \
  "与在这台电脑上运行的语言模型对话" \
  "对话、模型和设置" \
  "Tokonoma 需要 Windows 10 或更高版本。" \
  "$INSTDIR 中有其他程序的文件。请选择其他文件夹。" \
  "$0 有 $1 MB 可用空间，Tokonoma 需要 $2 MB。请释放一些空间。" \
  "Tokonoma 已打开。请退出它（包括通知区域中的），然后重试。"
